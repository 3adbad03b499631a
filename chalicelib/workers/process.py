"""Process ownership: one program with everything that it starts, from start to reaped (scheduler.md 8.2, 8.5)."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..kernel.clock import Clock
from ..kernel.limits import INTERRUPT_GRACE_SECONDS, PLATFORM_END_SECONDS, TERMINATE_GRACE_SECONDS
from ..leases.machine import living_processes, process_facts
from . import keeper

_KEEPER = Path(keeper.__file__)
_STATUS_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program ended: exactly one of exit code, signal number, and an error text (it could not be started).

    ``leftovers`` counts the processes that outlived it and were killed; ``witnessed`` is false when its keeper was
    killed too, so that nobody saw how it ended; ``ran`` is false when it was ended before it was let run.
    """

    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    leftovers: int = 0
    witnessed: bool = True
    ran: bool = True


@dataclass(frozen=True, slots=True)
class Account:
    """The user and group that a program runs as, with its name and home; only root may give another than its own."""

    uid: int
    gid: int
    name: str
    home: str

    @property
    def variables(self) -> dict[str, str]:
        """What a program finds of it in its environment."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


class OwnedProcess:
    """A program in a session and process group of its own, held by a keeper.

    The thread that starts it must live until ``wait`` has returned an ending: the parent-death signal follows the
    thread. The program does nothing before ``release()``.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path,
        output: int,
        errors: int | None = None,
        inherited: Sequence[int] = (),
        account: Account | None = None,
        end_orphans: bool = False,
    ) -> None:
        """Start the keeper; raises ``OSError``.

        ``output`` is the descriptor that gets stdout, and stderr too unless ``errors`` is given. ``account`` is who the
        program runs as. ``end_orphans`` ends at once what loses its own keeper below this one.
        """
        if account is not None:
            environment = {**environment, **account.variables}
        orders = {"user": [account.uid, account.gid] if account else None, "end_orphans": end_orphans}
        go_reader, self._go = os.pipe()
        self._status, status_writer = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-I", "-S", str(_KEEPER),
                    str(os.getpid()), str(go_reader), str(status_writer), json.dumps(orders), *argv,
                ],
                env=dict(environment), cwd=cwd, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output if errors is None else errors,
                pass_fds=(go_reader, status_writer, *inherited), start_new_session=True,
            )  # fmt: skip
        except OSError:
            self._close(self._go, self._status)
            raise
        finally:
            self._close(go_reader, status_writer)
        self._released = self._asked_to_kill = False
        facts = process_facts(self._process.pid)
        self.group = self._process.pid
        self.started = facts.started if facts is not None else 0
        self.ending: Ending | None = None

    def release(self) -> None:
        """Let the program run; its process group is recorded."""
        self._released = True
        with suppress(BrokenPipeError):
            os.write(self._go, b"g")

    def wait(self, seconds: float) -> Ending | None:
        """The ending, when it comes within ``seconds``; then everything that the program started is reaped."""
        if self.ending is not None:
            return self.ending
        told = self._told(seconds)
        if told is None:
            return None
        code = self._process.wait()  # the keeper closes its pipe as the last thing it does
        self._close(self._go, self._status)
        end_session(self.group, self.started)
        self.ending = _ending(told, code, self._released)
        return self.ending

    def _told(self, seconds: float) -> bytes | None:
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        if not poll.poll(max(0.0, seconds) * 1000):
            return None
        return os.read(self._status, _STATUS_BYTES)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the program and to what stayed in its group; before the release it ends at once."""
        if not self._released:
            self._process.kill()
        elif self.ending is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, number)

    def terminate(self) -> None:
        """Ask the program to end, by SIGTERM to its group."""
        self.signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the program and every descendant, whatever group or session it is in.

        The keeper does it; when it is asked again it has not, and the group is killed with it.
        """
        if self.ending is not None:
            return
        if self._released and not self._asked_to_kill:
            self._process.send_signal(keeper.KILL_ALL)
        else:
            self.signal_group(signal.SIGKILL)
        self._asked_to_kill = True

    def end_for_sure(self) -> Ending:
        """Kill it if it lives, and wait: an owner never leaves a child behind, also when something failed."""
        while (ending := self.wait(0)) is None:
            self.kill()
            self.wait(1)
        return ending

    @staticmethod
    def _close(*descriptors: int) -> None:
        for descriptor in descriptors:
            os.close(descriptor)


def _ending(told: bytes, code: int, released: bool) -> Ending:
    if not told:
        # The keeper is killed with the group by nobody but a foreign hand, or by us before the release.
        return Ending(signal=-code if code < 0 else signal.SIGKILL, witnessed=not released, ran=released)
    facts = json.loads(told)
    return Ending(facts.get("exit"), facts.get("signal"), facts.get("error"), facts["leftovers"])


def end_session(session: int, started: int) -> int:
    """Kill what is left of a session whose leader had that pid and start time; how many processes that were.

    A pid is not given out again while it names a session, so a process with that pid and another start time means that
    the old session is gone.
    """
    leader = process_facts(session)
    if leader is not None and leader.started != started:
        return 0
    members = [facts for facts in living_processes() if facts.session == session and facts.started >= started]
    for member in members:
        with suppress(ProcessLookupError):
            os.kill(member.pid, signal.SIGKILL)
    return len(members)


Step = Literal["none", "interrupt", "terminate", "kill"]


@dataclass(frozen=True, slots=True)
class Graces:
    """Seconds from SIGINT to SIGTERM, and from there to SIGKILL."""

    interrupt_seconds: float = INTERRUPT_GRACE_SECONDS
    terminate_seconds: float = TERMINATE_GRACE_SECONDS

    @property
    def total_seconds(self) -> float:
        """From SIGINT until nothing is left, with a second SIGKILL for what the first did not reach."""
        return self.interrupt_seconds + 2 * self.terminate_seconds

    def within(self, seconds_left: float) -> Graces:
        """The same for a worker whose platform ends it after ``seconds_left`` (scheduler.md 8.5)."""
        interrupt = max(0.0, min(self.interrupt_seconds, seconds_left - PLATFORM_END_SECONDS))
        return Graces(interrupt, self.terminate_seconds)


class Escalation:
    """The order of 8.5: SIGINT to the group, grace, SIGTERM, grace, SIGKILL to every descendant.

    Record the intent before ``begin()``: the program may end in the same instant.
    """

    def __init__(self, process: OwnedProcess, graces: Graces, clock: Clock) -> None:
        self._process = process
        self._graces = graces
        self._clock = clock
        self._next_at = 0.0
        self.strongest: Step = "none"

    def begin(self) -> None:
        """Interrupt the program; repeating it changes nothing."""
        if self.strongest == "none":
            self._take("interrupt", self._graces.interrupt_seconds, lambda: self._process.signal_group(signal.SIGINT))

    def advance(self) -> None:
        """Take the next step when its time has come."""
        if self.strongest == "none" or self._clock.elapsed_seconds() < self._next_at:
            return
        if self.strongest == "interrupt":
            self._take("terminate", self._graces.terminate_seconds, lambda: self._process.signal_group(signal.SIGTERM))
        else:
            self._take("kill", self._graces.terminate_seconds, self._process.kill)

    def sent(self) -> frozenset[int]:
        """The signals that we sent."""
        order: list[tuple[Step, int]] = [
            ("interrupt", signal.SIGINT), ("terminate", signal.SIGTERM), ("kill", signal.SIGKILL),
        ]  # fmt: skip
        steps = [step for step, _ in order]
        reached = steps.index(self.strongest) + 1 if self.strongest in steps else 0
        return frozenset(number for _, number in order[:reached])

    def _take(self, step: Step, grace_seconds: float, act: Callable[[], None]) -> None:
        self.strongest = step
        self._next_at = self._clock.elapsed_seconds() + grace_seconds
        act()
