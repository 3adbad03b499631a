import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chalicelib.kernel.errors import FolderInUse, LocalStackFailed
from chalicelib.local.folder import LocalFolder
from chalicelib.local.postgres import EmbeddedPostgres
from chalicelib.local.stack import LocalStack, StackOptions

BOUND = 40.0
JOBS = """
from tidemill import Command, Job

hello = Job(key="hello", build=Command(argv=["python", "-c", "print('hello')"]), writes=[])
"""


class Running:
    """A started stack and what it said."""

    def __init__(self, data: Path, **options: Any) -> None:
        self.said: list[str] = []
        self.data = data
        self.stack = LocalStack(StackOptions(data=data, **options), self._say, environment={})
        self.addresses = self.stack.start()

    def _say(self, text: str) -> None:
        self.said.append(text)

    def get(self, path: str) -> httpx.Response:
        token = (self.data / "operator-token").read_text(encoding="ascii")
        return httpx.get(
            f"{self.addresses.server}/v1{path}", headers={"Authorization": f"Bearer {token}"}, timeout=BOUND
        )

    def post(self, path: str, body: object) -> httpx.Response:
        token = (self.data / "operator-token").read_text(encoding="ascii")
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.post(f"{self.addresses.server}/v1{path}", json=body, headers=headers, timeout=BOUND)

    def hears(self, text: str) -> None:
        assert until(lambda: any(text in line for line in self.said)), self.said


def until(condition: Callable[[], bool]) -> bool:
    pause = threading.Event()
    for _ in range(int(BOUND / 0.05)):
        if condition():
            return True
        pause.wait(0.05)
    return False


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(**options: Any) -> Running:
        started.append(Running(folder / ".tidemill", **options))
        return started[-1]

    yield begin
    for running in started:
        running.stack.stop()


@pytest.fixture
def project(folder: Path) -> Path:
    place = folder / "project"
    place.mkdir()
    text = f'location = "shop"\nmodules = ["jobs"]\npython = "{sys.executable}"\n[targets.dev]\nsingle_writer = true\n'
    (place / "tidemill.toml").write_text(text, encoding="utf-8")
    (place / "jobs.py").write_text(JOBS, encoding="utf-8")
    return place


def test_serves_describes_itself_and_is_gone_after_stop(start: Callable[..., Running]) -> None:
    running = start()
    folder = LocalFolder(running.data)
    assert folder.read_description() == {
        "pid": os.getpid(),
        "server": running.addresses.server,
        "database_url": running.addresses.database_url,
        "aws_endpoint": running.addresses.aws_endpoint,
        "console": None,
    }
    assert httpx.get(f"{running.addresses.server}/v1/health").status_code == 200
    assert running.get("/ready").status_code == 200
    assert running.get("/runs").json() == {"items": [], "next_cursor": None}
    assert httpx.get(f"{running.addresses.server}/v1/runs").status_code == 401
    running.stack.stop()
    assert folder.read_description() == {}
    assert not (running.data / "postgres" / "data" / "postmaster.pid").exists()
    for address in (running.addresses.server, running.addresses.aws_endpoint):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))


def test_tokens_locations_and_objects_survive_a_restart(start: Callable[..., Running], project: Path) -> None:
    first = start(projects=(project,), worker=False)
    first.hears("published 1 job to shop/dev")
    secrets = [(first.data / name).read_text(encoding="ascii") for name in ("operator-token", "tokens/shop")]
    first.stack.services.aws.objects.put("kept", b"object")
    first.stack.stop()
    second = start(projects=(project,), worker=False)
    assert [(second.data / name).read_text(encoding="ascii") for name in ("operator-token", "tokens/shop")] == secrets
    assert second.stack.services.aws.objects.get("kept") == b"object"
    assert second.get("/locations/shop/targets/dev/jobs/hello").status_code == 200


def test_second_stack_is_refused_and_the_first_goes_on(start: Callable[..., Running]) -> None:
    first = start()
    with pytest.raises(FolderInUse, match=first.addresses.server):
        start()
    assert first.get("/runs").status_code == 200
    assert LocalFolder(first.data).read_description()["server"] == first.addresses.server


def test_port_in_use_is_told_before_anything_slow_starts(start: Callable[..., Running], folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalStackFailed, match=f"port {port}"):
            start(port=port)
    assert not (folder / ".tidemill" / "postgres").exists()
    start().stack.stop()


def test_start_that_fails_half_way_leaves_nothing_behind(start: Callable[..., Running]) -> None:
    running = start()
    running.stack.stop()
    (running.data / "objects").rename(running.data / "elsewhere")
    (running.data / "objects").write_text("a file in the way", encoding="utf-8")
    with pytest.raises(OSError, match="objects"):
        start()
    assert not (running.data / "postgres" / "data" / "postmaster.pid").exists()
    (running.data / "objects").unlink()
    start()


def test_killed_postgres_is_started_again_and_the_api_answers_again(start: Callable[..., Running]) -> None:
    running = start()
    pid = int((running.data / "postgres" / "data" / "postmaster.pid").read_text(encoding="ascii").splitlines()[0])
    os.kill(pid, signal.SIGKILL)
    running.hears("Postgres ended unexpectedly")
    running.hears("Postgres runs again")
    assert until(lambda: running.get("/runs").status_code == 200)


def test_other_database_and_other_endpoint_are_used(start: Callable[..., Running], folder: Path) -> None:
    other = EmbeddedPostgres(folder / "other", settings={"fsync": "off"})
    try:
        running = start(database_url=other.start())
        assert running.addresses.database_url == other.url()
        assert running.get("/runs").status_code == 200
        assert not (running.data / "postgres").exists()
        running.stack.stop()
        assert other.is_running()
    finally:
        other.stop()


def test_project_is_published_again_when_a_file_changes(start: Callable[..., Running], project: Path) -> None:
    running = start(projects=(project,), worker=False)
    running.hears("published 1 job to shop/dev")
    (project / "jobs.py").write_text(
        JOBS + 'again = Job(key="again", build=hello.build, writes=[])\n', encoding="utf-8"
    )
    running.hears("published 2 jobs to shop/dev")
    (project / "jobs.py").write_text("this is no Python", encoding="utf-8")
    running.hears("not published, what was published before stays: jobs.py")
    assert running.get("/locations/shop/targets/dev/jobs/again").status_code == 200
    (project / "jobs.py").write_text(
        JOBS + 'again = Job(key="again", build=hello.build, writes=[])\n', encoding="utf-8"
    )
    running.hears("compiles again, and what is published is current")


def test_environment_of_a_target_survives_publishing(start: Callable[..., Running], project: Path) -> None:
    from chalicelib.local.publisher import find_target
    from chalicelib.locations.model import TargetSettings

    running = start(projects=(project,), worker=False)
    running.hears("published 1 job to shop/dev")
    locations = running.stack.services.locations
    locations.set_target("shop", "dev", TargetSettings(single_writer=True, environment={"REGION": "north"}))
    (project / "jobs.py").write_text(
        JOBS + 'again = Job(key="again", build=hello.build, writes=[])\n', encoding="utf-8"
    )
    running.hears("published 2 jobs to shop/dev")
    found = find_target(locations, "shop", "dev")
    assert found is not None
    assert found.environment == {"REGION": "north"}


def test_requested_run_is_built_by_the_supervised_worker(start: Callable[..., Running], project: Path) -> None:
    running = start(projects=(project,))
    running.hears("published 1 job to shop/dev")
    body = {"run_id": "run_0123456789abcdef", "inputs": {}}
    answer = running.post("/locations/shop/targets/dev/jobs/hello/runs", body)
    assert answer.status_code == 201, answer.text
    final = {"succeeded", "failed", "launch_failed", "cancelled"}
    assert until(lambda: running.get("/runs/run_0123456789abcdef").json()["state"] in final)
    run = running.get("/runs/run_0123456789abcdef").json()
    assert run["state"] == "succeeded", (run, (running.data / "worker.log").read_text(encoding="utf-8"))
    running.stack.stop()
    assert list((running.data / "boots").glob("*.json")) == []
