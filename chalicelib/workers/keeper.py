"""The keeper: one small process between a worker and a program, which owns everything that the program starts.

Run by file path as ``python -I -S keeper.py <parent pid> <go> <status> <orders> <program> <arguments>`` with the Python
of the worker; it imports the standard library only. It is a subreaper, so that orphans of the program, whatever session
they moved to, come back to it; it waits until the owner has recorded its process group; and it ends, with every
descendant, when its parent dies (scheduler.md 8.2). A fork in a worker with threads would run Python between fork and
exec; a fresh process with one thread does not have that problem.

The orders are one JSON object: ``user``, ``[uid, gid]`` to become before the program starts, and ``end_orphans``, which
ends at once whatever comes back as an orphan while the program lives. That is for a keeper above a worker: what comes
back there has lost its own keeper.

Signals: SIGINT and SIGTERM to the group are for the program, the keeper ignores them. SIGUSR1 from the owner kills
every descendant. SIGUSR2 is the parent-death signal and does the same when the parent is really gone.

What it writes to the status pipe, one JSON object: ``{"exit": code}``, ``{"signal": number}`` or
``{"error": text}`` (the program could not be started), with ``leftovers``, the number of processes that outlived the
program and were killed. Nothing written means that the keeper itself was killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
# Each of these lets root look into a process that is not dumpable: PTRACE, ADMIN and (Linux 6.12 on) PERFMON.
LOOKING_CAPABILITIES = (19, 21, 38)
KILL_ALL = signal.SIGUSR1
PARENT_DIED = signal.SIGUSR2

_CANNOT_START = 127
_PARENT_GONE = 125
_LOOK_SECONDS = 1.0
# Fields of /proc/<pid>/stat behind the program's name.
_STATE, _PARENT = 0, 1


def prctl(option: int, value: int) -> bool:
    """One Linux process control call; ``False`` when it is refused or there is none."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        return int(library.prctl(option, value, 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False


def main(arguments: list[str]) -> int:
    """Start the program, reap until nothing is left of it, tell how it ended."""
    parent, go, status = (int(text) for text in arguments[:3])
    orders: dict[str, Any] = json.loads(arguments[3])
    _bind_to(parent)
    if os.read(go, 1) != b"g":
        return _PARENT_GONE  # the owner died or gave up before the group was recorded
    os.close(go)
    program, problem = _start(arguments[4:], status, orders.get("user"))
    ending: dict[str, object] = dict(reap_until(program, end_orphans=bool(orders.get("end_orphans"))))
    if problem:
        ending = {"error": problem}
    ending["leftovers"] = end_descendants()
    os.write(status, json.dumps(ending).encode())
    return 0


def _bind_to(parent: int) -> None:
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def end_all(number: int, _frame: FrameType | None) -> None:
        if number == KILL_ALL:
            _kill_descendants()
        elif os.getppid() != parent:
            end_descendants()
            os._exit(_PARENT_GONE)

    signal.signal(KILL_ALL, end_all)
    signal.signal(PARENT_DIED, end_all)
    prctl(PR_SET_PDEATHSIG, PARENT_DIED)
    if os.getppid() != parent:
        os._exit(_PARENT_GONE)  # it died before the line above


def _start(command: list[str], status: int, user: list[int] | None) -> tuple[int, str]:
    """Fork and exec; the pid and an error text, which the close-on-exec pipe carries back."""
    reader, writer = os.pipe()
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(command, keeper, writer, (reader, status), user)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        problem = stream.read().decode(errors="replace")
    return pid, problem


def _become(
    command: list[str], keeper: int, errors: int, unneeded: tuple[int, ...], user: list[int] | None
) -> NoReturn:
    try:
        for number in (signal.SIGINT, signal.SIGTERM, KILL_ALL, PARENT_DIED):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for descriptor in unneeded:
            os.close(descriptor)
        for capability in LOOKING_CAPABILITIES:
            prctl(PR_CAPBSET_DROP, capability)  # refused, and without effect, for anyone but root
        if user is not None:
            os.setgroups([])
            os.setresgid(user[1], user[1], user[1])
            os.setresuid(user[0], user[0], user[0])
        # After the change of user, which would take the signal back.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == keeper:
            os.execvp(command[0], command)  # noqa: S606 - no shell on purpose
    except OSError as error:
        os.write(errors, f"{command[0]} cannot be started: {error.strerror}".encode())
    os._exit(_CANNOT_START)


def reap_until(program: int, *, end_orphans: bool = False) -> dict[str, int]:
    """Reap whatever ends, until the program has; ``end_orphans`` kills what came back to us meanwhile."""
    while True:
        pid, status = _next_end(program) if end_orphans else os.wait()
        if pid != program:
            continue
        code = os.waitstatus_to_exitcode(status)
        return {"exit": code} if code >= 0 else {"signal": -code}


def _next_end(program: int) -> tuple[int, int]:
    """Like ``os.wait``; an orphan that lives is killed at the next look."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                return pid, status
            for child in _children() - {program}:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            signal.sigtimedwait([signal.SIGCHLD], _LOOK_SECONDS)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def end_descendants() -> int:
    """Kill and reap until nothing is left; how many there were. Their children become ours, so this ends with none."""
    ended = 0
    while True:
        _kill_descendants()
        try:
            _, status = os.wait()
        except ChildProcessError:
            return ended
        ended += os.waitstatus_to_exitcode(status) == -signal.SIGKILL  # the others had ended before


def _kill_descendants() -> None:
    parents = _parents()
    family = {os.getpid()}
    grown = True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in family} - family
        family |= children
        grown = bool(children)
    for pid in family - {os.getpid()}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children() -> set[int]:
    """Our own children, by the list that the kernel keeps of them where it does (one thread, so one list)."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as stream:  # noqa: PTH123 - os is loaded already
            return {int(pid) for pid in stream.read().split()}
    except OSError:
        return {pid for pid, parent in _parents().items() if parent == os.getpid()}


def _parents() -> dict[int, int]:
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - os is loaded already
        if not name.isdigit():
            continue
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stream:  # noqa: PTH123 - os is loaded already
            fields = stream.read().rpartition(b")")[2].split()
            if fields[_STATE] != b"Z":
                parents[int(name)] = int(fields[_PARENT])
    return parents


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
