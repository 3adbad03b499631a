"""Workers that die with whatever watched over them, while the local stack goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chalicelib.leases.machine import living_processes
from chalicelib.local.stack import LocalStack, StackOptions
from chalicelib.local.worker_process import WorkerPlan, worker_command, worker_environment
from chalicelib.runs.model import RunRequest

RUN = "run_0123456789abcdef"
MESSAGE = '{"kind":"recovery","shard":0,"v":1}'
JOBS = """
from tidemill import Command, Job

slow = Job(key="slow", build=Command(argv=["sleep", "1000"]), writes=[])
"""


def until(condition: Callable[[], bool]) -> bool:
    pause = threading.Event()
    for _ in range(800):
        if condition():
            return True
        pause.wait(0.05)
    return False


class Site:
    """A stack without a worker of its own, and one that somebody started by hand."""

    def __init__(self, folder: Path) -> None:
        project = folder / "project"
        project.mkdir()
        (project / "tidemill.toml").write_text(
            f'location = "shop"\nmodules = ["jobs"]\npython = "{sys.executable}"\n[targets.dev]\nsingle_writer = true\n'
        )
        (project / "jobs.py").write_text(JOBS)
        self.said: list[str] = []
        self.data = folder / ".tidemill"
        options = StackOptions(data=self.data, projects=(project,), worker=False)
        self.stack = LocalStack(options, self.said.append, environment={})
        self.stack.start()
        self.services = self.stack.services
        plan = WorkerPlan((project,), (), 1)
        tokens = ["--token-file", str(self.data / "tokens" / "shop")]
        self._log = (folder / "worker.log").open("wb")
        self.worker = subprocess.Popen(
            [*worker_command(plan, self.data), *tokens],
            env=worker_environment(self.services.settings, os.environ),
            stdout=self._log,
            stderr=self._log,
        )

    def state(self) -> str:
        return self.services.runs.run(RUN).state

    def kill_all(self) -> None:
        """The worker and all that it started, in no order of theirs."""
        family = {self.worker.pid}
        living = living_processes()
        for _ in living:
            family |= {facts.pid for facts in living if facts.parent in family}
        for pid in family:
            os.kill(pid, signal.SIGKILL)
        self.worker.wait(20)

    def close(self) -> None:
        if self.worker.poll() is None:
            self.kill_all()
        self._log.close()
        self.stack.stop()


@pytest.fixture
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="tm-", dir="/tmp") as name:
        made = Site(Path(name))
        yield made
        made.close()


def test_a_worker_that_was_killed_with_its_watcher_is_settled_while_the_stack_runs(site: Site) -> None:
    assert until(lambda: any("published 1 job" in line for line in site.said)), site.said
    site.services.runs.request("shop", "dev", "slow", RunRequest(run_id=RUN), "tester")
    assert until(lambda: site.state() == "running")
    site.services.aws.queues.send("recovery", MESSAGE)
    assert site.state() == "running"
    site.kill_all()
    site.services.recovery.close()  # the one that is watching ends, and the next one looks at this machine first
    site.services.aws.queues.send("recovery", MESSAGE)
    assert until(lambda: site.state() != "running"), site.said
    run = site.services.runs.run(RUN)
    assert (run.state, run.end_reason) == ("failed", "lost")
    assert run.claim is not None
    assert run.claim.process_ended_at is not None
    assert until(lambda: any("settled 1 runs of a worker that is gone" in line for line in site.said)), site.said
    assert list((site.data / "boots").glob("*.json")) == []
