"""``tidemill dev`` as its users run it: a process that is interrupted, and one that is killed."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

BOUND = 60.0
JOBS = """
from tidemill import Command, Input, Job

script = "import os, time, pathlib; pathlib.Path('started').touch(); time.sleep(float(os.environ['SECONDS']))"
nap = Job(
    key="nap",
    build=Command(argv=["python", "-c", script]),
    writes=["shop.main.naps"],
    inputs={"seconds": Input(type="number", default=0, maps_to="env")},
)
"""
PROJECT_FILE = (
    f'location = "shop"\nmodules = ["jobs"]\npython = "{sys.executable}"\n[targets.dev]\nsingle_writer = true\n'
)


class Dev:
    """One ``python -m tidemill dev`` in its own session."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.errors = project.parent / f"errors-{os.urandom(4).hex()}.txt"
        with self.errors.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidemill", "dev"],
                cwd=project,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self.errors.read_text(encoding="utf-8")

    def hears(self, text: str) -> None:
        assert until(lambda: text in self.said or self.process.poll() is not None), self.said
        assert text in self.said

    def call(self, method: str, path: str, body: object = None) -> Any:
        data = self.project / ".tidemill"
        server = json.loads((data / "dev.json").read_text(encoding="utf-8"))["server"]
        token = (data / "operator-token").read_text(encoding="ascii")
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.request(method, f"{server}/v1{path}", json=body, headers=headers, timeout=BOUND).json()

    def request(self, run_id: str, seconds: float) -> None:
        body = {"run_id": run_id, "inputs": {"seconds": seconds}}
        assert self.call("POST", "/locations/shop/targets/dev/jobs/nap/runs", body)["reused"] is False

    def state_becomes(self, run_id: str, *states: str) -> dict[str, Any]:
        assert until(lambda: self.call("GET", f"/runs/{run_id}")["state"] in states), self.call(
            "GET", f"/runs/{run_id}"
        )
        run: dict[str, Any] = self.call("GET", f"/runs/{run_id}")
        return run


def until(condition: Callable[[], bool]) -> bool:
    pause = threading.Event()
    for _ in range(int(BOUND / 0.1)):
        if condition():
            return True
        pause.wait(0.1)
    return False


def processes_of(folder: Path) -> list[str]:
    """Command lines of living processes that name the folder or work in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            place = (process / "cwd").readlink()
        except OSError:
            continue
        if str(folder) in words or place.is_relative_to(folder):
            found.append(words)
    return found


@pytest.fixture
def project(folder: Path) -> Path:
    place = folder / "project"
    place.mkdir()
    (place / "tidemill.toml").write_text(PROJECT_FILE, encoding="utf-8")
    (place / "jobs.py").write_text(JOBS, encoding="utf-8")
    return place


@pytest.fixture
def start(project: Path) -> Iterator[Callable[[], Dev]]:
    started: list[Dev] = []

    def begin() -> Dev:
        started.append(Dev(project))
        return started[-1]

    yield begin
    for dev in started:
        if dev.process.poll() is None:
            dev.process.send_signal(signal.SIGINT)
        dev.process.wait(BOUND)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it_with_exit_code_0_and_nothing_is_left(
    start: Callable[[], Dev], project: Path, number: signal.Signals
) -> None:
    dev = start()
    dev.hears("published 1 job to shop/dev")
    assert processes_of(project)
    dev.process.send_signal(number)
    assert dev.process.wait(BOUND) == 0
    assert dev.said.rstrip().endswith("stopped")
    assert processes_of(project) == []
    assert not (project / ".tidemill" / "dev.json").exists()


def test_interrupt_while_it_starts_ends_it_too(start: Callable[[], Dev], project: Path) -> None:
    dev = start()
    dev.hears("starting Postgres")
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(BOUND) == 0
    assert processes_of(project) == []


def test_second_one_in_the_folder_ends_with_exit_code_5(start: Callable[[], Dev]) -> None:
    first = start()
    first.hears("Ctrl-C stops everything")
    second = start()
    assert second.process.wait(BOUND) == 5
    assert f"process {first.process.pid}" in second.said


def test_killed_while_one_run_works_and_another_waits_both_settle_after_the_next_start(
    start: Callable[[], Dev], project: Path
) -> None:
    killed = start()
    killed.hears("published 1 job to shop/dev")
    killed.request("run_working_00000001", 600)
    assert until((project / "started").exists)
    killed.request("run_waiting_00000002", 0)
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.process.wait(BOUND)
    again = start()
    again.hears("run_working_00000001")
    lost = again.state_becomes("run_working_00000001", "failed", "succeeded", "cancelled")
    assert (lost["state"], lost["end_reason"]) == ("failed", "lost")
    again.state_becomes("run_waiting_00000002", "succeeded")
