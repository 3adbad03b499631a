"""Runs of Lambda workers: by the handler of the image, on a whole stack, and by the local stack's own worker."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chalicelib.cloud.ports import QueueMessage
from chalicelib.entrypoints.events.run_lambda import handle_run
from chalicelib.local.stack import LocalStack, StackOptions
from chalicelib.workers.lambda_main import make_worker

BOUND = 60.0
RUN = "run_00000000000000000000000000000001"
JOBS = """
import sys
from tidemill import Command, Job

small = Job(
    key="small", worker="lambda", writes=["shop.main.small"],
    build=Command(argv=[sys.executable, "-c", "import os; print('built', os.environ['PASSWORD'])"]),
)
"""


class Context:
    aws_request_id = "9d4bd3f6-0000-4000-8000-request00001"

    def __init__(self) -> None:
        self._ends = time.monotonic() + 900

    def get_remaining_time_in_millis(self) -> int:
        return int((self._ends - time.monotonic()) * 1000)


class Installation:
    """A local stack with one published job for Lambda, whose target has a secret in its environment."""

    def __init__(self, folder: Path, project: Path, *, worker: bool) -> None:
        self.said: list[str] = []
        self.data = folder / ".tidemill"
        options = StackOptions(data=self.data, projects=(project,), worker=worker)
        self.stack = LocalStack(options, self.said.append, environment={})
        self.server = self.stack.start().server
        self.put_secret("db", json.dumps({"password": "hunter2-hunter2"}))
        # The publication of a local stack sets the target as the project file says; what is set by hand comes after it.
        self.until(lambda: any("published 1 job" in line for line in self.said))
        settings = {"single_writer": True, "settle_seconds": 0, "environment": {"PASSWORD": "secret:db#password"}}
        self.call("PUT", "/admin/locations/shop/targets/dev", settings)

    def put_secret(self, name: str, value: str) -> None:
        self.stack.services.aws.client("secretsmanager").create_secret(Name=name, SecretString=value)

    def call(self, method: str, path: str, body: object = None) -> Any:
        token = (self.data / "operator-token").read_text(encoding="ascii")
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.request(method, f"{self.server}/v1{path}", json=body, headers=headers, timeout=BOUND)
        assert answer.is_success, answer.text
        return answer.json()

    def until(self, told: Callable[[], bool]) -> None:
        pause, ends = threading.Event(), time.monotonic() + BOUND
        while not told():
            assert time.monotonic() < ends, self.said
            pause.wait(0.05)

    def request(self) -> None:
        self.call("POST", "/locations/shop/targets/dev/jobs/small/runs", {"run_id": RUN})

    def message(self) -> QueueMessage:
        received: list[QueueMessage] = []

        def receive() -> bool:
            received.extend(self.stack.services.aws.queues.receive("run-lambda", wait_seconds=1))
            return bool(received)

        self.until(receive)
        return received[0]

    def run(self) -> Any:
        return self.call("GET", f"/runs/{RUN}")

    def log(self) -> bytes:
        objects = self.stack.services.aws.objects
        return b"".join(objects.get(key) or b"" for key in objects.keys(f"runs/{RUN}/logs/"))


@pytest.fixture
def project(folder: Path) -> Path:
    place = folder / "project"
    place.mkdir()
    text = f'location = "shop"\nmodules = ["jobs"]\npython = "{sys.executable}"\n[targets.dev]\nsingle_writer = true\n'
    (place / "tidemill.toml").write_text(text, encoding="utf-8")
    (place / "jobs.py").write_text(JOBS, encoding="utf-8")
    return place


@pytest.fixture
def install(folder: Path, project: Path) -> Iterator[Callable[..., Installation]]:
    made: list[Installation] = []

    def begin(*, worker: bool) -> Installation:
        made.append(Installation(folder, project, worker=worker))
        return made[-1]

    yield begin
    for installation in made:
        installation.stack.stop()


def test_the_handler_of_the_image_carries_a_run_from_message_to_end(
    install: Callable[..., Installation], folder: Path, project: Path
) -> None:
    """Its token comes from the secret that only its role may read; a redelivery after the end has no effect."""
    here = install(worker=False)
    here.put_secret("worker-tokens", (here.data / "tokens" / "shop").read_text(encoding="ascii"))
    services = here.stack.services
    settings = services.settings.model_copy(
        update={
            "token_secret": "worker-tokens",
            "worker_projects": str(project),
            "worker_state": str(folder / "environment"),
        }
    )
    worker = make_worker(settings, services.aws)
    here.request()
    message = here.message()
    record = {
        "body": message.body,
        "receiptHandle": message.receipt,
        "attributes": {"ApproximateReceiveCount": str(message.receive_count)},
    }
    handle_run(worker, {"Records": [record]}, Context())
    run = here.run()
    assert (run["state"], run["claim"]["worker_kind"]) == ("succeeded", "lambda")
    assert here.log() == b"built [hidden]\n"
    events = here.call("GET", f"/runs/{RUN}/events")["items"]
    handle_run(worker, {"Records": [record]}, Context())
    assert here.run() == run
    assert here.call("GET", f"/runs/{RUN}/events")["items"] == events


def test_the_worker_of_a_local_stack_takes_runs_of_lambda_workers_too(install: Callable[..., Installation]) -> None:
    here = install(worker=True)
    here.request()
    here.until(lambda: here.run()["finished_at"] is not None)
    assert here.run()["state"] == "succeeded", json.dumps(here.run(), indent=1)
    assert here.log() == b"built [hidden]\n"
