"""Supervised workers as real processes, and real builds by sqb and dbt through a whole worker."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import SecretStr

from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.errors import TidemillError, Unavailable
from chalicelib.kernel.ids import IdSource
from chalicelib.leases.boots import BeatAnswer
from chalicelib.projects.command import verified_nodes
from chalicelib.projects.compile import compile_project
from chalicelib.runs.model import NodeReport, Outcome
from chalicelib.settings import read_settings
from chalicelib.workers.loop import Worker
from chalicelib.workers.pace import Pace
from chalicelib.workers.process import Graces
from chalicelib.workers.records import boot_records
from chalicelib.workers.supervisor import Supervisor
from chalicelib.workers.verification import Project
from tests.e2e.project_environments import copy_example, environment_for
from tests.unit.workers.doubles import Cloud, Server, inputs_of, message_of, processes_with

pytestmark = pytest.mark.end_to_end

# A worker that has one child and does nothing else: what the supervisor sees of a real one.
STAND_IN = """
import json, os, random, signal, sys, time
from pathlib import Path
from chalicelib.leases.machine import read_identity
from chalicelib.workers.main import protect_process, take_tokens
from chalicelib.workers.process import OwnedProcess
from chalicelib.workers.records import BootFile, settle

protect_process()
tokens = take_tokens(None, os.environ)
state = Path(sys.argv[1])
boot = f"boot_{os.getpid():016d}"
signal.signal(signal.SIGTERM, lambda *_: (settle(state, boot), os._exit(0)))
file = BootFile(state, boot, read_identity(state, random.Random(1)), ["tools"])
file.open()
script = f"setsid sh -c 'sleep 600; : {sys.argv[2]}' & sleep 600; : {sys.argv[2]}"
child = OwnedProcess(["sh", "-c", script], environment=dict(os.environ), cwd=Path("/"), output=2)
file.record_group("run_1", child.group, child.started)
child.release()
told = {"pid": os.getpid(), "boot": boot, "token": tokens[0].get_secret_value(), "environment": sorted(os.environ)}
(state / "told.new").write_text(json.dumps(told))
os.rename(state / "told.new", state / f"told-{os.getpid()}.json")
while True:
    time.sleep(60)
"""


class Supervised:
    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.state.mkdir()
        self.marker = f"run-under-{folder.name}-{os.getpid()}"
        self.proved: list[str] = []
        self.faults: list[TidemillError] = []
        self._seen: set[Path] = set()
        self.supervisor = Supervisor(
            [sys.executable, "-c", textwrap.dedent(STAND_IN), str(self.state), self.marker],
            state_dir=self.state,
            prove_ended=self._prove,
            environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd())},
            tokens=[SecretStr("tml_secret")],
            clock=SystemClock(),
            random=random.Random(1),
            stop_seconds=5,
            restart_seconds=0.05,
        )

    def told(self) -> dict[str, object]:
        """What the next worker says of itself."""
        until(lambda: bool(set(self.state.glob("told-*.json")) - self._seen))
        path = (set(self.state.glob("told-*.json")) - self._seen).pop()
        self._seen.add(path)
        until(lambda: len(self.alive()) >= 2)
        return dict(json.loads(path.read_text()))

    def alive(self) -> list[int]:
        return processes_with(f": {self.marker}")

    def _prove(self, boot_id: str) -> None:
        if self.faults:
            raise self.faults.pop()
        assert self.alive() == []
        self.proved.append(boot_id)


def until(told: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not told():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    made = Supervised(tmp_path)
    made.supervisor.start()
    yield made
    made.supervisor.stop()
    assert made.alive() == []


def test_a_killed_worker_is_proved_ended_and_started_again(supervised: Supervised) -> None:
    first = supervised.told()
    supervised.faults.append(Unavailable("away"))
    os.kill(int(str(first["pid"])), signal.SIGKILL)
    second = supervised.told()
    assert supervised.proved == [first["boot"]]
    assert [record.boot_id for record in boot_records(supervised.state)] == [second["boot"]]
    assert supervised.supervisor.starts == 2


def test_the_token_comes_by_a_pipe_and_is_in_no_environment(supervised: Supervised) -> None:
    told = supervised.told()
    assert told["token"] == "tml_secret"
    assert set(told["environment"]) <= {"PATH", "PYTHONPATH", "LC_CTYPE", "TIDEMILL_SUPERVISED"}  # type: ignore[call-overload]  # a list of names
    for pid in processes_with(str(supervised.state)):
        assert b"tml_secret" not in (Path("/proc") / str(pid) / "cmdline").read_bytes()


def test_stopping_ends_all_of_it(supervised: Supervised) -> None:
    supervised.told()
    supervised.supervisor.stop()
    assert supervised.alive() == []
    assert processes_with(str(supervised.state)) == []
    assert boot_records(supervised.state) == []


def test_a_killed_keeper_of_the_worker_ends_the_worker_too(supervised: Supervised) -> None:
    first = supervised.told()
    stat = (Path("/proc") / str(first["pid"]) / "stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    supervised.told()
    assert supervised.proved == [first["boot"]]


SUPERVISING = """
import os, random, sys, threading
from pathlib import Path
from pydantic import SecretStr
from chalicelib.kernel.clock import SystemClock
from chalicelib.workers.supervisor import Supervisor

supervisor = Supervisor(
    sys.argv[2:], state_dir=Path(sys.argv[1]), prove_ended=lambda boot: None, environment=dict(os.environ),
    tokens=[SecretStr("tml_secret")], clock=SystemClock(), random=random.Random(1),
)
supervisor.start()
threading.Event().wait()
"""


def test_a_killed_supervisor_takes_the_worker_and_its_builds_with_it(tmp_path: Path) -> None:
    """S42: kill -9 of whatever stands highest leaves nothing below it."""
    marker = f"run-under-a-killed-supervisor-{os.getpid()}"
    stand_in = [sys.executable, "-c", textwrap.dedent(STAND_IN), str(tmp_path), marker]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen([sys.executable, "-c", SUPERVISING, str(tmp_path), *stand_in], env=environment) as supervisor:
        until(lambda: bool(list(tmp_path.glob("told-*.json"))) and len(processes_with(f": {marker}")) >= 2)
        supervisor.kill()
    until(lambda: processes_with(f": {marker}") == [] and processes_with(str(tmp_path)) == [])


def test_a_build_that_lost_its_keeper_is_ended_while_the_worker_lives(supervised: Supervised) -> None:
    """The grandchild left the session; the keeper above the worker gets it back, and ends it."""
    told = supervised.told()
    (record,) = boot_records(supervised.state)
    os.kill(record.groups["run_1"].pgid, signal.SIGKILL)
    until(lambda: supervised.alive() == [])
    os.kill(int(str(told["pid"])), 0)


# --- real tools

TOOLS = {"coffee_sqlbuild": "sqb", "coffee_dbt": "dbt"}


class Build:
    """A worker on in-memory ports for one copied example."""

    def __init__(self, example: str, folder: Path, python: Path) -> None:
        self.project = copy_example(example, folder / "project")
        self.python, self.state = python, folder / "state"
        self.example, self.cloud, self.server = example, Cloud(), Server()
        self.cancel_at_start = False
        self.tool_folder = self.project / "warehouse" if example == "coffee_sqlbuild" else self.project

    def run(self, job: str = "coffee", number: int = 1) -> tuple[Outcome, dict[str, NodeReport], str]:
        """Build the job once; its outcome, the nodes that were reported, and its log."""
        compiled = compile_project(
            self.project, target="dev", python=self.python, now=datetime(2026, 12, 1, tzinfo=UTC), work_dir=self.state
        )
        definition = compiled.index.jobs[job]
        keys = {node: compiled.index.nodes[node].drift_key for node in verified_nodes(definition)}
        run_id = f"run_{number:016d}"
        inputs = inputs_of(
            definition, run_id, location=self.example, baseline_hash=compiled.index.baseline, drift_keys=keys
        )
        self.server.runs[run_id] = inputs
        clock, stop = SystemClock(), threading.Event()
        worker = Worker(
            read_settings({}), self.cloud, self.server, {self.example: Project(self.project, self.python)}, slots=1,
            state_dir=self.state, clock=clock, ids=IdSource(clock), random=random.Random(1),
            pace=Pace(Graces(5, 1), queue_wait_seconds=0, report_seconds=0.2),
        )  # fmt: skip
        thread = threading.Thread(target=worker.run_forever, args=(stop,))
        thread.start()
        try:
            self.cloud.queue.send("run-container", message_of(inputs))
            if self.cancel_at_start:
                until(lambda: len(processes_with(str(self.state / "runs"))) > 1, 60)
                worker._boot._deliver(BeatAnswer({run_id: "can_0123456789abcdef"}))
            call = self.server.wait_for("terminal", number, seconds=90)[-1]
        finally:
            stop.set()
            thread.join(60)
        nodes = {n.node: n for c in self.server.named("nodes") if c.run_id == run_id for n in c.body.nodes}
        log = self.server.uploads.get(f"https://objects/{run_id}/0001.log", b"").decode()
        return call.body.outcome, nodes, log

    def break_model(self, path: str, words: str) -> None:
        """Make a model fail when it is built, not when it is compiled."""
        file = self.tool_folder / path
        text, count = re.subn(r"(?im)^select$", f"select error('{words}') as broken,", file.read_text(), count=1)
        assert count == 1
        file.write_text(text)


@pytest.fixture(params=sorted(TOOLS))
def build(request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    python = environment_for(request.param, tmp_path_factory)
    if python is None:
        assert request.param == "coffee_sqlbuild", "every machine that runs these tests has a Python for dbt"
        python = environment_for("coffee_dbt", tmp_path_factory)
        assert python is not None
        return Build("coffee_dbt", tmp_path, python)
    return Build(request.param, tmp_path, python)


def test_a_build_reports_every_node_by_its_snapshot_id(build: Build) -> None:
    outcome, nodes, log = build.run()
    assert (outcome.state, outcome.settled) == ("succeeded", True), (outcome, log)
    definition = next(iter(build.server.runs.values())).definition
    assert set(nodes) == set(definition.nodes)
    assert {node.status for node in nodes.values()} == {"succeeded"}
    assert all(node.duration_seconds is not None and node.finished_at is not None for node in nodes.values())
    assert log


def test_a_failing_model_fails_with_its_own_words(build: Build) -> None:
    build.break_model("models/marts/bean_revenue.sql", "the mill stands still")
    outcome, nodes, log = build.run()
    assert (outcome.state, outcome.end_reason) == ("failed", "tool_failed"), (outcome, log)
    assert "the mill stands still" in str(outcome.message)
    failed = [node for node in nodes.values() if node.status == "failed"]
    assert [node.node.rpartition(".")[2].rpartition(":")[2] for node in failed] == ["bean_revenue"]
    assert "the mill stands still" in str(failed[0].message)
    assert failed[0].finished_at is not None


def test_a_cancelled_build_ends_soon_and_settles(build: Build) -> None:
    """Cancelled while the tool starts: between statements both tools end by SIGINT."""
    build.cancel_at_start = True
    outcome, _, log = build.run()
    assert (outcome.state, outcome.settled) == ("cancelled", True), (outcome, log)
