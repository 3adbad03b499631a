"""``tidemill dev`` as its user runs it: a process in a project's folder, driven by the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil

Found = TypeVar("Found")

TIDEMILL = [str(Path(sys.executable).parent / "tidemill")]
TERMINAL = {"succeeded", "failed", "cancelled", "launch_failed"}
_MARK = "TIDEMILL_TEST_MARK"


def wait_for(condition: Callable[[], Found], seconds: float, what: str) -> Found:
    """The first true value of ``condition``; fails when ``seconds`` are over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds:.0f} s in vain for {what}")


class Dev:
    """One ``tidemill dev`` in ``folder``; every process that comes of it carries a mark in its environment."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self._arguments = arguments
        self._mark = f"{folder.name}-{os.getpid()}-{time.monotonic_ns()}"
        self._said = folder.parent / f"dev-{time.monotonic_ns()}.log"

    def launch(self) -> None:
        """Start, and do not wait."""
        with self._said.open("wb") as said:
            environment = {**os.environ, _MARK: self._mark}
            command = [*TIDEMILL, "dev", *self._arguments]
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )

    def start(self, seconds: float = 90) -> None:
        """Start and wait until it can be used."""
        self.launch()
        wait_for(self._ready, seconds, f"dev to start; it said:\n{self.said}")

    def _ready(self) -> bool:
        assert self.process.poll() is None, f"dev ended with {self.process.returncode}:\n{self.said}"
        described = self.folder / ".tidemill" / "dev.json"
        try:
            return bool(json.loads(described.read_text())["pid"] == self.process.pid)
        except FileNotFoundError:
            return False

    @property
    def said(self) -> str:
        """Everything on stdout and stderr so far."""
        return self._said.read_text() if self._said.exists() else ""

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ctrl-C, or another signal; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(120)

    def kill(self) -> None:
        """As a crash of the machine's user session would: no chance to clean up."""
        self.process.kill()
        self.process.wait(10)

    def processes(self) -> list[psutil.Process]:
        """Everything that came of this ``dev`` and still lives, its own process included."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        """By the mark in its environment (workers and builds have a scrubbed one), or because it works in our folder."""
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            near = [process.cwd(), *process.cmdline()]
            return process.environ().get(_MARK) == self._mark or any(str(self.folder) in text for text in near)
        except psutil.Error:
            return False

    def worker(self) -> psutil.Process:
        """The process that polls the queue."""
        found = wait_for(self._worker, 60, "the worker to start")
        assert found is not None
        return found

    def _worker(self) -> psutil.Process | None:
        found = [p for p in psutil.process_iter() if _is_worker(p, self.process.pid)]
        return found[-1] if found else None

    def cli(self, *arguments: str, expect: Sequence[int] = (0,)) -> Any:
        """One command in the project's folder; its JSON document."""
        done = subprocess.run(
            [*TIDEMILL, *arguments, "--json"], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode in expect, f"{arguments} ended with {done.returncode}:\n{done.stderr}\n{done.stdout}"
        return json.loads(done.stdout)

    def request(self, job: str, *more: str) -> str:
        """Ask for a run; its id."""
        return str(self.cli("run", job, *more)["run"]["run_id"])

    def state(self, run_id: str) -> str:
        """The state of a run."""
        return str(self.cli("runs", "show", run_id)["state"])

    def wait_state(self, run_id: str, *states: str, seconds: float = 90) -> str:
        """Wait until the run is in one of the states."""

        def reached() -> str | None:
            state = self.state(run_id)
            return state if state in states else None

        return wait_for(reached, seconds, f"{run_id} to be {' or '.join(states)}; dev said:\n{self.said}") or ""

    def published(self, seconds: float = 90) -> None:
        """Wait until the project's jobs are there."""
        wait_for(
            lambda: self.cli("jobs", "list", expect=(0, 2)).get("items"),
            seconds,
            f"the publication; dev said:\n{self.said}",
        )


def _is_worker(process: psutil.Process, ancestor: int) -> bool:
    try:
        words = process.cmdline()
        return (
            words[-1:] != [] and "worker" in words and "run" in words and ancestor in [p.pid for p in process.parents()]
        )
    except psutil.Error:
        return False


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Dev]:
    """A started ``dev`` that is stopped at the end, by force when it must be."""
    dev = Dev(folder, *arguments)
    try:
        dev.start()
        yield dev
    finally:
        if dev.process.poll() is None:
            dev.process.send_signal(signal.SIGINT)
            try:
                dev.process.wait(120)
            except subprocess.TimeoutExpired:
                dev.process.kill()
        for process in dev.processes():
            process.kill()


JOBS = """
import sys
from tidemill import Command, Input, Job

quick = Job(key="quick", build=Command(argv=[sys.executable, "-c", "print('done')"]), writes=["db.main.quick"], timeout=60)
slow = Job(
    key="slow",
    build=Command(argv=[sys.executable, "-c", "import os, time; time.sleep(float(os.environ['SECONDS']))"]),
    inputs={"seconds": Input(type="integer", default=120, maps_to="env")},
    writes=["db.main.slow"],
    timeout=300,
)
"""


def command_project(folder: Path, jobs: str = JOBS) -> Path:
    """A project of plain commands, run by this very interpreter."""
    folder.mkdir()
    (folder / "tidemill.toml").write_text(
        f'name = "plain"\nmodules = ["jobs"]\npython = "{sys.executable}"\n\n[targets.dev]\nsettle_seconds = 0\n'
    )
    (folder / "jobs.py").write_text(jobs)
    return folder
