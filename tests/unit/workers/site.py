"""One worker on in-memory ports, with a project whose only job runs what a test writes down."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chalicelib.kernel.clock import Clock, SystemClock
from chalicelib.kernel.ids import IdSource
from chalicelib.leases import partition_of
from chalicelib.leases.boots import key_of
from chalicelib.projects.command import verified_nodes
from chalicelib.projects.compilation import Compilation
from chalicelib.projects.compile import compile_project
from chalicelib.runs.model import Outcome, RunInputs
from chalicelib.settings import Settings
from chalicelib.workers.loop import Worker
from chalicelib.workers.pace import Pace
from chalicelib.workers.process import Graces
from chalicelib.workers.server import WorkerApi
from chalicelib.workers.verification import Project
from tests.unit.workers.doubles import COMMAND_PROJECT, Cloud, Server, inputs_of, message_of

RUN = "run_0123456789abcdef"
PACE = Pace(
    Graces(0.3, 0.3),
    stop_seconds=0.2,
    queue_wait_seconds=0,
    report_seconds=0.05,
    foreign_seconds=7,
    retry_max_seconds=0.5,
    last_call_seconds=2,
    last_join_seconds=2,
)
# Beats often, so that no test waits for a second; the setting itself is in whole seconds.
SETTINGS = Settings().model_copy(update={"lease_seconds": 1, "beat_seconds": 0.1})
# The program does what the file named by the run tells it: one project serves every test.
PROGRAM = """\
import os, pathlib, sys
here = pathlib.Path(__file__).parent
exec((here / "program.txt").read_text())
"""
JOBS = """\
import sys
from tidemill import Command, Job
tool = Job(key="tool", build=Command(argv=[sys.executable, "program.py"], ok_exit_codes=[0, 9]), writes=[], timeout={timeout})
"""


class Site:
    """One worker, its ports and its project."""

    def __init__(self, folder: Path) -> None:
        self.cloud = Cloud()
        self.server = Server()
        self.state = folder / "state"
        self.project = folder / "project"
        self.project.mkdir()
        self.stop = threading.Event()
        self.codes: list[int] = []
        self._thread: threading.Thread | None = None
        (self.project / "tidemill.toml").write_text(COMMAND_PROJECT.format(python=sys.executable))
        (self.project / "program.py").write_text(PROGRAM)
        self.program("print('done')")
        self.declare()

    def program(self, text: str) -> None:
        (self.project / "program.txt").write_text(text)

    def declare(self, timeout: int = 60) -> None:
        (self.project / "jobs.py").write_text(JOBS.format(timeout=timeout))

    def compiled(self) -> Compilation:
        work_dir = self.state.parent / "published"
        return compile_project(
            self.project, target="dev", python=None, now=datetime(2026, 1, 1, tzinfo=UTC), work_dir=work_dir
        )

    def publish(self, run_id: str = RUN, **fields: Any) -> RunInputs:
        """A queued run of what is on disk now; its message is not sent."""
        index = self.compiled().index
        definition = index.jobs["tool"]
        keys = {node: index.nodes[node].drift_key for node in verified_nodes(definition)}
        inputs = inputs_of(definition, run_id, baseline_hash=index.baseline, drift_keys=keys, **fields)
        self.server.runs[run_id] = inputs
        return inputs

    def send(self, inputs: RunInputs) -> None:
        self.cloud.queue.send("run-container", message_of(inputs))

    def begin(
        self,
        *,
        slots: int = 1,
        pace: Pace = PACE,
        clock: Clock | None = None,
        api: WorkerApi | None = None,
        settings: Settings = SETTINGS,
        **options: Any,
    ) -> Worker:
        clock = clock or SystemClock()
        worker = Worker(
            settings,
            self.cloud,
            api or self.server,
            {"tools": Project(self.project)},
            slots=slots,
            state_dir=self.state,
            clock=clock,
            ids=IdSource(clock, random.Random()),
            random=random.Random(1),
            pace=pace,
            **options,
        )
        self._thread = threading.Thread(target=lambda: self.codes.append(worker.run_forever(self.stop)))
        self._thread.start()
        return worker

    def end(self) -> int:
        self.stop.set()
        if self._thread is not None:
            self._thread.join(60)
            assert not self._thread.is_alive()
        return self.codes[-1] if self.codes else 0

    def item(self, worker: Worker) -> dict[str, Any]:
        key = key_of(worker.boot_id, partition_of(worker.boot_id))
        until(lambda: key in self.cloud.table.items)
        return self.cloud.table.items[key]

    def wait_deleted(self, count: int = 1) -> None:
        queue = self.cloud.queue
        with queue.condition:
            assert queue.condition.wait_for(lambda: len(queue.deleted) >= count, 20), queue.deleted

    def wait_hidden(self) -> tuple[str, int]:
        queue = self.cloud.queue
        with queue.condition:
            assert queue.condition.wait_for(lambda: bool(queue.hidden), 20)
            return queue.hidden[0]


def until(told: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not told():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def names(site: Site) -> list[str]:
    return [call.name for call in site.server.calls]


LONG = """
import signal, time
print("up", flush=True)
(here / "up").touch()
time.sleep(120)
"""
GATED = LONG.replace("time.sleep(120)", "while not (here / 'go').exists(): time.sleep(0.02)")


def running(site: Site, program: str = LONG, **options: Any) -> Worker:
    """A worker whose run is up; ``options`` are those of ``begin``."""
    site.program(program)
    worker = site.begin(**options)
    site.send(site.publish())
    until((site.project / "up").exists)
    return worker


def ended(site: Site) -> Outcome:
    """The outcome of the newest terminal report."""
    outcome = site.server.terminal().outcome
    assert outcome is not None
    return outcome


def slow_to_compile(site: Site) -> RunInputs:
    """A published run whose compile on the worker hangs, in a program that ignores what it is asked."""
    inputs = site.publish()
    (site.project / "jobs.py").write_text(f"""
import pathlib, signal, time
for number in (2, 15): signal.signal(number, signal.SIG_IGN)
pathlib.Path({str(site.project)!r}, "compiling").touch()
time.sleep(600)
""")
    return inputs
