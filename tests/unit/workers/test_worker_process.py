"""Process ownership (scheduler.md 8.2, 8.5): real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chalicelib.kernel.clock import SystemClock
from chalicelib.leases.machine import process_facts
from chalicelib.workers.keeper import PR_SET_DUMPABLE, prctl
from chalicelib.workers.process import Ending, Escalation, Graces, OwnedProcess, end_session
from tests.unit.workers.doubles import descriptors, processes_with

Start = Callable[..., OwnedProcess]
QUICK = Graces(0.3, 0.3)


class Console:
    """What the child prints, read line by line."""

    def __init__(self) -> None:
        reader, self.writer = os.pipe()
        self.lines = os.fdopen(reader)

    def line(self) -> str:
        return self.lines.readline().strip()


@pytest.fixture
def console() -> Iterator[Console]:
    made = Console()
    yield made
    made.lines.close()


@pytest.fixture
def start(console: Console, tmp_path: Path) -> Iterator[Start]:
    started: list[OwnedProcess] = []

    def begin(*argv: str, release: bool = True) -> OwnedProcess:
        process = OwnedProcess(
            argv, environment={"PATH": os.environ["PATH"]}, cwd=tmp_path, output=console.writer, inherited=()
        )
        os.close(console.writer)
        started.append(process)
        if release:
            process.release()
        return process

    yield begin
    for process in started:
        process.kill()
        assert process.wait(10) is not None


def python(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


def ended(process: OwnedProcess) -> Ending:
    ending = process.wait(10)
    assert ending is not None
    return ending


def escalated(process: OwnedProcess, graces: Graces = QUICK) -> tuple[Ending, Escalation]:
    escalation = Escalation(process, graces, SystemClock())
    escalation.begin()
    while (ending := process.wait(0.05)) is None:
        escalation.advance()
    return ending, escalation


def gone(marker: str, seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while processes_with(marker):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_exit_codes_and_output_arrive(start: Start, console: Console) -> None:
    process = start("sh", "-c", "echo out; echo err >&2; exit 3")
    assert ended(process) == Ending(exit_code=3)
    assert (console.line(), console.line()) == ("out", "err")


def test_a_program_that_does_not_exist_is_an_error_and_no_exit_code(start: Start) -> None:
    ending = ended(start("/nowhere/tool"))
    assert ending.error == "/nowhere/tool cannot be started: No such file or directory"
    assert ending.exit_code is None


def test_nothing_runs_before_the_release(start: Start, tmp_path: Path) -> None:
    process = start("touch", "proof", release=False)
    assert process.wait(0.3) is None
    assert not (tmp_path / "proof").exists()
    process.release()
    assert ended(process).exit_code == 0
    assert (tmp_path / "proof").exists()


def test_a_child_that_is_not_released_is_ended_by_any_signal(start: Start, tmp_path: Path) -> None:
    process = start("touch", "proof", release=False)
    ending, _ = escalated(process)
    assert ending.signal == signal.SIGKILL
    assert not (tmp_path / "proof").exists()


def test_it_leads_a_session_and_group_of_its_own(start: Start, console: Console) -> None:
    process = start(*python("import os; print(os.getpgid(0), os.getsid(0), os.getppid())"))
    group, session, parent = (int(text) for text in console.line().split())
    assert group == session == parent == process.group != os.getpgid(0)
    ended(process)


def test_sigint_is_enough_for_an_ordinary_program(start: Start, console: Console) -> None:
    process = start("sh", "-c", "echo up; exec sleep 60")
    console.line()
    ending, escalation = escalated(process, Graces(10, 10))
    assert ending.signal == signal.SIGINT
    assert escalation.sent() == {signal.SIGINT}


def test_a_program_that_ignores_sigint_gets_sigterm(start: Start, console: Console) -> None:
    process = start(
        *python(
            "import signal,time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('up',flush=True); time.sleep(60)"
        )
    )
    console.line()
    ending, escalation = escalated(process)
    assert ending.signal == signal.SIGTERM
    assert escalation.sent() == {signal.SIGINT, signal.SIGTERM}


def test_a_program_that_ignores_everything_is_killed(start: Start, console: Console) -> None:
    process = start(
        *python("""
        import signal, time
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        print("up", flush=True)
        time.sleep(60)
        """)
    )
    console.line()
    ending, escalation = escalated(process)
    assert ending.signal == signal.SIGKILL
    assert escalation.strongest == "kill"


def test_orphans_in_another_session_are_ended_with_it(start: Start, console: Console) -> None:
    marker = f"orphan-of-{os.getpid()}-exit"
    process = start(
        *python(f"""
        import os, sys
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(writer, b"x")
                print(os.getpid(), flush=True)
                os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", "{marker}"])
            os._exit(0)
        os.read(reader, 1)
        """)
    )
    orphan = int(console.line())
    ending = ended(process)
    assert ending == Ending(exit_code=0, leftovers=1)
    assert process_facts(orphan) is None
    assert processes_with(marker) == []


def test_a_kill_reaches_grandchildren_that_left_the_session(start: Start, console: Console) -> None:
    marker = f"grandchild-of-{os.getpid()}-kill"
    process = start("sh", "-c", f"setsid sh -c 'echo up; sleep 60; : {marker}' & wait")
    assert console.line() == "up"
    process.kill()
    assert ended(process).signal == signal.SIGKILL
    assert processes_with(marker) == []


def test_a_signal_from_outside_is_told_as_it_is(start: Start, console: Console) -> None:
    process = start(*python("import os,time; print(os.getpid(), flush=True); time.sleep(60)"))
    os.kill(int(console.line()), signal.SIGSEGV)
    ending = ended(process)
    assert ending.signal == signal.SIGSEGV
    assert ending.witnessed


def test_a_killed_keeper_takes_the_program_with_it_and_nobody_saw_the_end(start: Start, console: Console) -> None:
    marker = f"under-a-keeper-{os.getpid()}"
    process = start(*python(f"import time; print('up', flush=True); time.sleep(60)  # {marker}"))
    console.line()
    os.kill(process.group, signal.SIGKILL)
    ending = ended(process)
    assert (ending.signal, ending.witnessed) == (signal.SIGKILL, False)
    assert gone(marker)


def test_everything_ends_when_the_owner_process_is_killed(tmp_path: Path) -> None:
    marker = f"owner-killed-{os.getpid()}"
    owner = f"""
        import os, sys, time
        from pathlib import Path
        from chalicelib.workers.process import OwnedProcess
        script = "setsid sh -c 'sleep 60; : {marker}' & echo up; sleep 60; : {marker}"
        process = OwnedProcess(["sh", "-c", script], environment=dict(os.environ), cwd=Path("/"), output=1)
        process.release()
        time.sleep(60)
    """
    reader, writer = os.pipe()
    owner_pid = os.posix_spawn(
        sys.executable,
        python(owner),
        {**os.environ, "PYTHONPATH": str(Path.cwd())},
        file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)],
    )
    os.close(writer)
    with os.fdopen(reader) as lines:
        assert lines.readline().strip() == "up"
        deadline = time.monotonic() + 5
        while len(processes_with(f": {marker}")) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(owner_pid, signal.SIGKILL)
        os.waitpid(owner_pid, 0)
    assert gone(f": {marker}")


def test_the_child_cannot_look_into_its_worker(start: Start, console: Console, tmp_path: Path) -> None:
    """The worker is this very process for a moment: not dumpable, with a secret in its environment and a descriptor."""
    secret = tmp_path / "token"
    secret.write_text("tml_secret")
    os.environ["TIDEMILL_TEST_SECRET"] = "tml_secret"
    prctl(PR_SET_DUMPABLE, 0)
    try:
        with secret.open() as held:
            process = start(
                *python(f"""
                import json, os
                found = {{"environment": sorted(os.environ)}}
                for pid in ({os.getpid()}, os.getppid()):
                    for name in ("environ", "mem", "fd/{held.fileno()}"):
                        try:
                            with open(f"/proc/{{pid}}/{{name}}", "rb") as stream:
                                stream.read(1)
                            found[f"{{pid}}/{{name}}"] = "read"
                        except OSError as error:
                            found[f"{{pid}}/{{name}}"] = type(error).__name__
                found["descriptors"] = sorted(int(name) for name in os.listdir("/proc/self/fd"))
                print(json.dumps(found))
                """)
            )
            found = json.loads(console.line())
            assert ended(process).exit_code == 0
    finally:
        prctl(PR_SET_DUMPABLE, 1)
        del os.environ["TIDEMILL_TEST_SECRET"]
    allowed = {"PATH", "LC_CTYPE"}
    assert set(found.pop("environment")) <= allowed
    # Its own three and the one that lists the folder.
    assert len(found.pop("descriptors")) == 4
    assert len(found) == 6
    assert {name: told for name, told in found.items() if told == "read"} == {}


def test_fifty_quick_programs_leave_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        before, threads = descriptors(), threading.active_count()
        for _ in range(50):
            process = OwnedProcess(["true"], environment={"PATH": os.environ["PATH"]}, cwd=tmp_path, output=null)
            process.release()
            assert ended(process).exit_code == 0
        assert descriptors() == before
        assert threading.active_count() == threads
    finally:
        os.close(null)


def test_what_is_left_of_a_session_is_ended_only_when_it_is_that_session(start: Start, console: Console) -> None:
    process = start("sh", "-c", "echo up; sleep 60")
    console.line()
    facts = process_facts(process.group)
    assert facts is not None
    assert end_session(process.group, facts.started + 1) == 0
    assert process.wait(0.1) is None
    assert end_session(process.group, facts.started) >= 1
    assert ended(process).witnessed is False
