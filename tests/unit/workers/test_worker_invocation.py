"""The worker of a Lambda: one run per invocation (scheduler.md 8.1, 8.2, 8.5, 7.4)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from chalicelib.entrypoints.events.run_lambda import handle_run
from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.errors import ClaimEnded, ClaimTaken, Malformed, NotFound, TidemillError, Unavailable, UsageError
from chalicelib.kernel.ids import IdSource
from chalicelib.leases.machine import process_facts, read_identity
from chalicelib.runs.model import RunInputs
from chalicelib.settings import Settings
from chalicelib.workers.boot import Ground
from chalicelib.workers.invocation import LambdaWorker, MessageLeft
from chalicelib.workers.lambda_main import project_folders
from chalicelib.workers.pace import Pace
from chalicelib.workers.process import Graces
from chalicelib.workers.records import BootFile, boot_records
from chalicelib.workers.server import WorkerApi
from chalicelib.workers.verification import Project, Verifier
from tests.unit.workers.doubles import descriptors, message_of, processes_with
from tests.unit.workers.site import LONG, RUN, SETTINGS, Site, ended, names, until

EVENT = json.loads((Path(__file__).parents[3] / "events" / "sqs_run_lambda.json").read_text(encoding="utf-8"))


class Exited(BaseException):
    """The environment ended."""


class Context:
    """As Lambda gives it: the time counts down from when it is made."""

    def __init__(self, seconds: float = 900) -> None:
        self.aws_request_id = "9d4bd3f6-0000-4000-8000-request00001"
        self._ends = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return int((self._ends - time.monotonic()) * 1000)


def event_of(*runs: RunInputs) -> dict[str, Any]:
    (record,) = EVENT["Records"]
    return {"Records": [record | {"body": message_of(inputs)} for inputs in runs]}


class Function:
    """One environment of the function."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.call_seconds: list[float] = []
        clock = SystemClock()
        verifier = Verifier({"tools": Project(site.project)}, site.state / "compile", clock)
        pace = Pace(Graces(0.3, 0.3), report_seconds=0.05, retry_max_seconds=0.2)
        ids = IdSource(clock, random.Random())
        ground = Ground(SETTINGS, site.state, verifier, clock, ids, random.Random(1), pace)
        self.worker = LambdaWorker(ground, site.cloud, self._connect, self._exit)

    def invoke(self, *runs: RunInputs, seconds: float = 900) -> None:
        handle_run(self.worker, event_of(*runs), Context(seconds))

    @contextmanager
    def _connect(self, seconds: float) -> Iterator[WorkerApi]:
        self.call_seconds.append(seconds)
        yield self.site.server

    def _exit(self) -> NoReturn:
        raise Exited


@pytest.fixture
def function(site: Site) -> Function:
    return Function(site)


def test_an_invocation_is_one_boot_and_one_run(site: Site, function: Function) -> None:
    site.program("print('hello')")
    function.invoke(site.publish())
    assert ended(site).state == "succeeded"
    request = site.server.named("accept")[0].body
    assert (request.worker_kind, request.started_ref) == ("lambda", Context().aws_request_id)
    assert site.cloud.table.items == {}
    assert boot_records(site.state) == []
    assert (site.cloud.queue.deleted, site.cloud.queue.hidden) == ([], [])  # Lambda deletes it
    assert 880 < function.call_seconds[0] < 900


def test_the_lease_says_what_the_boot_is(site: Site, function: Function) -> None:
    items = site.cloud.table.items
    site.program(LONG.replace("time.sleep(120)", "while not (here / 'go').exists(): time.sleep(0.02)"))
    inputs = site.publish()
    thread = threading.Thread(target=function.invoke, args=(inputs,))
    thread.start()
    until((site.project / "up").exists)
    (item,) = items.values()
    assert (item["kind"], item["started_ref"]) == ("lambda", Context().aws_request_id)
    (site.project / "go").touch()
    thread.join(20)
    assert ended(site).state == "succeeded"


def test_two_invocations_of_one_environment_leave_nothing_behind(site: Site, function: Function) -> None:
    function.invoke(site.publish())
    threads, open_files = threading.active_count(), descriptors()
    for number in range(3):
        function.invoke(site.publish(f"run_again_{number:016d}"))
    assert len(site.server.named("terminal")) == 4
    assert threading.active_count() == threads
    assert descriptors() == open_files


@pytest.mark.parametrize("refusal", [ClaimTaken("x"), ClaimEnded("x")])
def test_a_redelivered_message_is_dropped(site: Site, function: Function, refusal: TidemillError) -> None:
    """S33: after success, while running, after a cancel; returning deletes it."""
    site.server.faults["accept"] = [refusal]
    function.invoke(site.publish())
    assert names(site) == ["accept"]


def test_a_run_that_is_not_ours_stays_in_the_queue(site: Site, function: Function) -> None:
    site.server.faults["accept"] = [NotFound("no such run")]
    with pytest.raises(MessageLeft):
        function.invoke(site.publish())
    assert site.cloud.queue.hidden == [(EVENT["Records"][0]["receiptHandle"], 60)]
    assert site.cloud.table.items == {}


def test_a_message_that_cannot_be_read_is_left_for_the_dead_letter_queue(function: Function) -> None:
    (record,) = EVENT["Records"]
    with pytest.raises(MessageLeft):
        handle_run(function.worker, {"Records": [record | {"body": "{"}]}, Context())


def test_more_than_one_message_is_refused(site: Site, function: Function) -> None:
    inputs = site.publish()
    with pytest.raises(Malformed, match="batch size"):
        function.invoke(inputs, inputs)


# --- the time that is left


def test_the_child_ends_before_the_function_does(site: Site, function: Function) -> None:
    """The smaller of the job's time-out and the time left minus 45 s."""
    site.program(LONG)
    function.invoke(site.publish(), seconds=45 + 3)
    assert (ended(site).state, ended(site).end_reason) == ("failed", "timed_out")
    assert processes_with(str(site.project)) == []


def test_the_job_s_own_limit_counts_when_it_is_smaller(site: Site, function: Function) -> None:
    site.declare(timeout=1)
    site.program(LONG)
    before = time.monotonic()
    function.invoke(site.publish())
    assert ended(site).end_reason == "timed_out"
    assert time.monotonic() - before < 60


def test_too_little_time_starts_nothing(site: Site, function: Function) -> None:
    with pytest.raises(MessageLeft):
        function.invoke(site.publish(), seconds=44)
    assert names(site) == []


def test_a_server_that_does_not_answer_in_time_leaves_the_message(site: Site, function: Function) -> None:
    site.server.faults["accept"] = [Unavailable("away")] * 1_000
    with pytest.raises(MessageLeft):
        function.invoke(site.publish(), seconds=45.5)
    assert site.cloud.queue.hidden[-1][1] == 0
    assert len(boot_records(site.state)) == 1  # whether the claim is ours is unknown: the next one proves the end


def test_a_compile_that_takes_too_long_is_interrupted(site: Site, function: Function) -> None:
    from tests.unit.workers.site import slow_to_compile

    function.invoke(slow_to_compile(site), seconds=45 + 2)
    assert ended(site).end_reason == "lost_before_start"
    assert processes_with(str(site.project)) == []


def test_an_end_that_is_not_taken_ends_the_waiting(site: Site, function: Function) -> None:
    site.server.faults["terminal"] = [Unavailable("away")] * 1_000
    site.program("sys.exit(0)")
    function.worker = replace(function.worker, last_call_seconds=45)
    function.invoke(site.publish(), seconds=45 + 3)
    assert len(boot_records(site.state)) == 1
    site.server.faults.clear()
    function.invoke(site.publish("run_the_next_000000000"))
    assert len(site.server.ended_boots) == 1
    assert boot_records(site.state) == []


@pytest.mark.parametrize(("left", "grace"), [(900, 30), (45, 25), (30, 10), (10, 0)])
def test_the_grace_is_what_the_time_left_allows(left: float, grace: float) -> None:
    assert Graces().within(left).interrupt_seconds == grace


# --- leftovers


@pytest.fixture
def leftover(site: Site) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """A process that an earlier invocation of this environment left, recorded for a run."""
    started: list[subprocess.Popen[bytes]] = []

    def make(run_id: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600)"],
            start_new_session=True,
        )
        started.append(process)
        facts = process_facts(process.pid)
        assert facts is not None
        file = BootFile(site.state, "boot_of_an_earlier_one", read_identity(site.state, random.Random(1)), ["tools"])
        file.open()
        file.record_group(run_id, process.pid, facts.started)
        return process

    yield make
    for process in started:
        process.kill()
        process.wait()


def test_leftovers_of_the_same_run_are_ended_first(site: Site, function: Function, leftover: Any) -> None:
    process = leftover(RUN)
    function.invoke(site.publish())
    assert process_facts(process.pid) is None
    assert ended(site).state == "succeeded"
    assert site.server.ended_boots == ["boot_of_an_earlier_one"]
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, 0)  # reaped


def test_leftovers_of_another_run_end_the_environment(site: Site, function: Function, leftover: Any) -> None:
    process = leftover("run_of_somebody_else00")
    with pytest.raises(Exited):
        function.invoke(site.publish())
    assert process_facts(process.pid) is None
    assert names(site) == ["boot_ended"]
    assert site.cloud.queue.hidden == [(EVENT["Records"][0]["receiptHandle"], 0)]


def test_a_server_that_is_away_does_not_hold_up_the_proof(site: Site, function: Function, leftover: Any) -> None:
    leftover(RUN)
    site.server.faults["boot_ended"] = [Unavailable("away")]
    function.invoke(site.publish())
    assert ended(site).state == "succeeded"


# --- where the projects are


def test_projects_are_named_or_lie_where_lambda_puts_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    named = Settings().model_copy(update={"worker_projects": "/a:/b"})
    assert project_folders(named) == [Path("/a"), Path("/b")]
    monkeypatch.setenv("LAMBDA_TASK_ROOT", "/var/task")
    assert project_folders(replace_projects(named, "")) == [Path("/var/task")]
    monkeypatch.delenv("LAMBDA_TASK_ROOT")
    with pytest.raises(UsageError, match="TIDEMILL_WORKER_PROJECTS"):
        project_folders(replace_projects(named, ""))


def replace_projects(settings: Settings, value: str) -> Settings:
    return settings.model_copy(update={"worker_projects": value})
