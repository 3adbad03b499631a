"""Stopping in order: the drain, its bound, the guardian, the protection from scale-in (scheduler.md 8.1; BR-164, 166)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.cloud.ports import QueueMessage
from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.errors import Unavailable, UsageError
from chalicelib.leases.machine import process_facts
from chalicelib.workers.pace import Pace, check_stop_time
from chalicelib.workers.process import Graces
from chalicelib.workers.protection import NO_PROTECTION, TaskProtection, protection_here
from chalicelib.workers.supervisor import _STOP_SECONDS
from tests.scripted_server import DROPPED, Asked, Reply, ScriptedServer, good, scripted_server
from tests.unit.workers.doubles import processes_with
from tests.unit.workers.site import GATED, LONG, PACE, Site, ended, names, running, slow_to_compile, until

ECS = {"ECS_CONTAINER_METADATA_URI_V4": "http://169.254.170.2/v4/x"}


# --- the drain


def test_beats_go_on_until_the_last_run_is_reported(site: Site) -> None:
    """BR-166: stopping is not stopped; the item is deleted when nothing runs any more."""
    worker = running(site, GATED, pace=Pace(PACE.graces, 30, 0, 0.05))
    site.stop.set()
    counter = site.item(worker)["counter"]
    until(lambda: site.item(worker)["counter"] >= counter + 3)
    assert "terminal" not in names(site)
    (site.project / "go").touch()
    assert site.end() == 0
    assert ended(site).state == "succeeded"
    assert site.cloud.table.items == {}


def test_a_stop_during_the_compile_interrupts_it(site: Site) -> None:
    inputs = slow_to_compile(site)
    site.begin()
    site.send(inputs)
    until((site.project / "compiling").exists)
    assert site.end() == 0
    assert (ended(site).state, ended(site).end_reason) == ("launch_failed", "lost_before_start")


def test_a_drain_is_bounded_although_nothing_answers_and_the_child_ignores_everything(site: Site) -> None:
    ignoring = "import signal\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\n" + LONG
    pace = Pace(Graces(0.2, 0.2), 0.2, 0, 0.05, 7, last_call_seconds=0.2, last_join_seconds=0.2)
    running(site, ignoring, pace=pace)
    site.server.faults["terminal"] = [Unavailable("away")] * 1_000
    before = time.monotonic()
    site.end()
    assert time.monotonic() - before < pace.drain_seconds
    assert processes_with(str(site.project)) == []


def test_a_queue_that_hangs_does_not_hold_up_the_stop(site: Site) -> None:
    running(site, GATED)
    asked, go_on = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> list[QueueMessage]:
        asked.set()
        go_on.wait(60)
        return []

    site.cloud.queue.receive = hang  # type: ignore[method-assign]  # a network that swallows
    (site.project / "go").touch()
    assert asked.wait(20)
    assert site.end() == 0
    assert not go_on.is_set()
    go_on.set()


def test_a_worker_that_needs_longer_than_its_platform_gives_refuses_to_start() -> None:
    needed = Pace().drain_seconds
    with pytest.raises(UsageError, match=f"needs up to {needed} s to stop, but its platform kills it after 60 s"):
        check_stop_time(Pace(), 60, {})
    with pytest.raises(UsageError, match=r"after 30 s.*stopTimeout"):
        check_stop_time(Pace(), 0, ECS)
    check_stop_time(Pace(), 0, {})
    check_stop_time(Pace(), needed, ECS)


def test_the_usual_drain_fits_into_what_fargate_gives_and_into_the_patience_of_the_supervisor() -> None:
    assert Pace().drain_seconds <= 120
    assert Pace().drain_seconds <= _STOP_SECONDS


# --- the guardian, as PID 1 of a container

GUARDED = """
import os, signal, sys, time
from pathlib import Path
from chalicelib.workers.guardian import be_guarded
from chalicelib.workers.process import OwnedProcess

here = Path(sys.argv[1])
assert be_guarded(os.environ) is False
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
script = f"setsid sh -c 'sleep 600; : {sys.argv[2]}' & sleep 600; : {sys.argv[2]}"
child = OwnedProcess(["sh", "-c", script], environment=dict(os.environ), cwd=here, output=2)
child.release()
(here / "told.new").write_text(f"{os.getpid()} {child.group}")
os.rename(here / "told.new", here / "told")
while True:
    time.sleep(60)
"""


class Guarded:
    def __init__(self, folder: Path) -> None:
        self.marker = f"guarded-{folder.name}-{os.getpid()}"
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd())}
        self.guardian = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(GUARDED), str(folder), self.marker], env=environment
        )
        until((folder / "told").exists)
        self.worker, self.keeper = (int(text) for text in (folder / "told").read_text().split())
        until(lambda: len(self.alive()) >= 2)

    def alive(self) -> list[int]:
        return processes_with(f": {self.marker}")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    yield made
    made.guardian.kill()
    made.guardian.wait()
    until(lambda: made.alive() == [])


def test_the_guardian_forwards_the_stop_and_ends_with_the_code_of_its_worker(guarded: Guarded) -> None:
    guarded.guardian.terminate()
    assert guarded.guardian.wait(20) == 7
    assert guarded.alive() == []


def test_a_killed_worker_takes_everything_with_it(guarded: Guarded) -> None:
    os.kill(guarded.worker, signal.SIGKILL)
    assert guarded.guardian.wait(20) == 128 + signal.SIGKILL
    assert guarded.alive() == []


def test_a_killed_guardian_takes_the_worker_with_it(guarded: Guarded) -> None:
    guarded.guardian.kill()
    until(lambda: process_facts(guarded.worker) is None and guarded.alive() == [])


def test_what_lost_its_keeper_is_ended_while_the_worker_lives(guarded: Guarded) -> None:
    """S42: a grandchild in a session of its own, whose keeper was killed, comes back to the guardian."""
    os.kill(guarded.keeper, signal.SIGKILL)
    until(lambda: guarded.alive() == [])
    assert process_facts(guarded.worker) is not None


# --- protection from scale-in


@pytest.fixture
def agent() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        server.answer(protecting)
        yield server


def protecting(asked: Asked) -> Reply:
    assert (asked.method, asked.path) == ("PUT", "/api/task-protection/v1/state")
    return good({"protection": {"ProtectionEnabled": asked.json["ProtectionEnabled"], "TaskArn": "arn"}})


def wanted(agent: ScriptedServer) -> list[bool]:
    return [asked.json["ProtectionEnabled"] for asked in agent.asked]


def test_a_task_is_protected_while_it_has_runs(site: Site, agent: ScriptedServer) -> None:
    protection = TaskProtection(f"{agent.url}/api", SystemClock())
    running(site, GATED, protection=protection)
    until(lambda: wanted(agent) == [True])
    assert agent.asked[0].json == {"ProtectionEnabled": True, "ExpiresInMinutes": 60}
    (site.project / "go").touch()
    until(lambda: wanted(agent) == [True, False])
    site.end()
    assert wanted(agent) == [True, False]


def test_several_runs_hold_one_protection_and_renew_it(agent: ScriptedServer) -> None:
    protection = TaskProtection(f"{agent.url}/api", SystemClock(), renew_seconds=0.05)
    with protection.held(), protection.held():
        until(lambda: len(agent.asked) >= 3)
    until(lambda: wanted(agent)[-1] is False)
    protection.close()
    assert set(wanted(agent)[:-1]) == {True}


def test_closing_gives_the_protection_back(agent: ScriptedServer) -> None:
    protection = TaskProtection(f"{agent.url}/api", SystemClock())
    with protection.held():
        until(lambda: wanted(agent) == [True])
        protection.close()
    assert wanted(agent) == [True, False]


FAILURE = json.dumps({"failure": {"Reason": "DEPLOYMENT_BLOCKED"}}).encode()


@pytest.mark.parametrize("fault", [DROPPED, Reply(500), Reply(200, FAILURE), Reply(302, b"", {"location": "/"})])
def test_an_agent_that_fails_is_asked_again_and_stops_nothing(agent: ScriptedServer, fault: Reply) -> None:
    protection = TaskProtection(f"{agent.url}/api", SystemClock(), retry_seconds=0.05)
    agent.answer_in_turn(fault, fault, good({"protection": {"ProtectionEnabled": True}}))
    with protection.held():
        until(lambda: len(agent.asked) == 3)
    agent.answer(lambda _: fault)
    protection.close()


def test_outside_of_a_task_nothing_is_asked() -> None:
    assert protection_here({}, SystemClock()) is NO_PROTECTION
    made = protection_here({"ECS_AGENT_URI": "http://127.0.0.1:9/api"}, SystemClock())
    assert isinstance(made, TaskProtection)
    made.close()
