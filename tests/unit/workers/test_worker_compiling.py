"""Verifying compiles: owned, interruptible, shared (scheduler.md 8.1, 8.2, 10.1; S39, S42)."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.errors import Drift
from chalicelib.projects.compilation import Compilation
from chalicelib.workers.compiling import OwnedPrograms, SharedCompiles
from chalicelib.workers.session import GaveUp
from tests.unit.workers.doubles import processes_with
from tests.unit.workers.site import RUN, Site, ended, names, slow_to_compile, until

PLACE = ("tools", "dev")


def test_a_cancel_during_the_compile_interrupts_it(site: Site) -> None:
    inputs = slow_to_compile(site)
    worker = site.begin()
    site.send(inputs)
    until((site.project / "compiling").exists)
    site.item(worker)["cancel"][RUN] = "can_0123456789abcdef"
    assert ended(site).state == "cancelled"
    assert "start" not in names(site)
    assert processes_with(str(site.project)) == []


def test_a_revocation_during_the_compile_interrupts_it(site: Site) -> None:
    inputs = slow_to_compile(site)
    worker = site.begin()
    site.send(inputs)
    until((site.project / "compiling").exists)
    site.item(worker)["revoked"][f"clm_{RUN}"] = True
    assert (ended(site).state, ended(site).end_reason) == ("launch_failed", "lost_before_start")


def test_a_burst_of_runs_shares_its_compiles(site: Site) -> None:
    (site.project / "jobs.py").write_text(
        f"open({str(site.project / 'compiles')!r}, 'a').write('x')\n" + (site.project / "jobs.py").read_text()
    )
    runs = [site.publish(f"run_burst_{number:016d}") for number in range(6)]
    (site.project / "compiles").write_text("")
    for inputs in runs:
        site.send(inputs)
    site.begin(slots=6)
    site.server.wait_for("terminal", 6)
    assert {call.body.outcome.state for call in site.server.named("terminal")} == {"succeeded"}
    assert 1 <= len((site.project / "compiles").read_text()) < 6


def test_a_compile_sees_the_target_s_environment(site: Site) -> None:
    """What is verified is what will be built, so it is compiled with the variables that the build gets."""
    jobs = (site.project / "jobs.py").read_text()
    (site.project / "jobs.py").write_text("import os\nassert os.environ.get('PLACE', 'here') == 'here'\n" + jobs)
    inputs = site.publish(environment={"PLACE": "there"})
    site.begin()
    site.send(inputs)
    assert ended(site).end_reason == "drift"


def compiled_by(shared: SharedCompiles, results: list[object], make: object) -> threading.Thread:
    def ask() -> None:
        try:
            results.append(shared.compiled(PLACE, threading.Event(), make))  # type: ignore[arg-type]  # a stand-in result
        except Drift as drift:
            results.append(drift.detail)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


@pytest.mark.parametrize("outcome", ["a compilation", Drift("it does not compile")])
def test_a_compile_that_began_before_a_run_came_does_not_hold_for_it(outcome: object) -> None:
    shared, results = SharedCompiles(), list[object]()
    inside, go, begun = threading.Event(), threading.Event(), list[int]()

    def make() -> object:
        begun.append(1)
        inside.set()
        assert go.wait(10)
        if isinstance(outcome, Drift):
            raise outcome
        return outcome

    threads = [compiled_by(shared, results, make)]
    assert inside.wait(10)
    threads += [compiled_by(shared, results, make) for _ in range(5)]
    until(lambda: shared._lines[PLACE].waiting == 5)
    go.set()
    for thread in threads:
        thread.join(10)
    assert len(begun) == 2
    assert results == [str(outcome)] * 6 if isinstance(outcome, Drift) else [outcome] * 6
    assert shared._lines[PLACE].result is None


def test_when_the_one_that_compiles_gives_up_another_one_does_it() -> None:
    shared, results = SharedCompiles(), list[object]()
    inside, go = threading.Event(), threading.Event()

    def give_up() -> Compilation:
        inside.set()
        assert go.wait(10)
        raise GaveUp("stopped")

    def lead() -> None:
        with pytest.raises(GaveUp):
            shared.compiled(PLACE, threading.Event(), give_up)

    leader = threading.Thread(target=lead)
    leader.start()
    assert inside.wait(10)
    follower = compiled_by(shared, results, lambda: "a compilation")
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(GaveUp):
        shared.compiled(PLACE, stopped, give_up)
    go.set()
    leader.join(10)
    follower.join(10)
    assert results == ["a compilation"]


def programs(folder: Path, stopped: threading.Event | None = None) -> OwnedPrograms:
    return OwnedPrograms(stopped or threading.Event(), SystemClock(), folder, {"ADDED": "yes"})


def run(owned: OwnedPrograms, folder: Path, *argv: str) -> tuple[int | None, str, str]:
    out, err = folder / "out", folder / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        code = owned(
            argv, cwd=folder, environment={"PATH": os.environ["PATH"]}, stdout=stdout.fileno(), stderr=stderr.fileno()
        )
    return code, out.read_text(), err.read_text()


def test_an_owned_program_keeps_its_streams_apart_and_gets_the_environment(tmp_path: Path) -> None:
    told = run(programs(tmp_path), tmp_path, "sh", "-c", "echo $ADDED; echo wrong >&2; exit 3")
    assert told == (3, "yes\n", "wrong\n")
    assert run(programs(tmp_path), tmp_path, "sh", "-c", "kill -SEGV $$")[0] == -11
    with pytest.raises(OSError, match="No such file") as refused:
        run(programs(tmp_path), tmp_path, "/nowhere/tool")
    assert refused.value.errno == errno.ENOENT


def test_an_owned_program_leaves_no_orphan(tmp_path: Path) -> None:
    marker = f"compile-orphan-{os.getpid()}"
    run(programs(tmp_path), tmp_path, "sh", "-c", f"setsid sh -c 'sleep 60; : {marker}' & exit 0")
    assert processes_with(f": {marker}") == []


def test_a_stop_ends_an_owned_program_that_ignores_signals(tmp_path: Path) -> None:
    marker, stopped = f"compile-stop-{os.getpid()}", threading.Event()
    threading.Timer(0.3, stopped.set).start()
    with pytest.raises(GaveUp):
        run(programs(tmp_path, stopped), tmp_path, "sh", "-c", f"trap '' INT TERM; sleep 60; : {marker}")
    assert processes_with(f": {marker}") == []


def test_a_killed_worker_takes_its_compile_with_it(tmp_path: Path) -> None:
    marker = f"compile-of-a-killed-worker-{os.getpid()}"
    script = f"setsid sh -c 'sleep 600; : {marker}' & sleep 600; : {marker}"
    worker = f"""
import os, sys, threading
from pathlib import Path
from chalicelib.kernel.clock import SystemClock
from chalicelib.workers.compiling import OwnedPrograms
programs = OwnedPrograms(threading.Event(), SystemClock(), Path("/"), {{}})
programs(["sh", "-c", {script!r}], cwd=Path("/"), environment=dict(os.environ), stdout=1, stderr=2)
"""
    with subprocess.Popen([sys.executable, "-c", worker]) as process:
        until(lambda: len(processes_with(f": {marker}")) >= 2)
        process.kill()
    until(lambda: processes_with(f": {marker}") == [])


def test_a_stop_meets_a_run_that_comes_after_it(site: Site) -> None:
    """The message was taken just before the stop; its run is interrupted like the others."""
    worker = site.begin()
    worker._boot.request_all("interrupt")
    site.send(site.publish())
    assert ended(site).end_reason == "lost_before_start"
