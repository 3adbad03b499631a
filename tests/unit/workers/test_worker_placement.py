"""Which task of the container service a worker runs in, by the task metadata endpoint."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from chalicelib.workers.placement import METADATA, started_ref

TASK = "arn:aws:ecs:eu-central-1:123456789012:task/tidemill-prod/0123456789abcdef0123456789abcdef"
ANSWER = {"Cluster": "tidemill-prod", "TaskARN": TASK, "Family": "worker", "LastStatus": "RUNNING"}


class Endpoint:
    """Answers ``GET /v4/<id>/task`` with what stands in ``answers``, one after the other."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str]] = []
        self.asked: list[str] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                endpoint.asked.append(self.path)
                status, body = endpoint.answers.pop(0)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.environment = {METADATA: f"http://127.0.0.1:{self.server.server_port}/v4/0123"}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def test_outside_a_task_there_is_no_reference() -> None:
    assert started_ref({}) is None


def test_a_worker_in_a_task_knows_its_task(endpoint: Endpoint) -> None:
    endpoint.answers = [(200, json.dumps(ANSWER))]
    assert started_ref(endpoint.environment) == TASK
    assert endpoint.asked == ["/v4/0123/task"]


def test_an_endpoint_that_is_late_is_asked_again(endpoint: Endpoint) -> None:
    endpoint.answers = [(500, ""), (200, "{"), (200, json.dumps(ANSWER))]
    assert started_ref(endpoint.environment) == TASK


@pytest.mark.parametrize(
    "answer", [(404, ""), (200, "[]"), (200, '{"TaskARN": 7}'), (200, '{"TaskARN": ""}'), (302, "")]
)
def test_without_an_answer_the_worker_goes_on_and_says_so(
    endpoint: Endpoint, answer: tuple[int, str], caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.answers = [answer] * 3
    with caplog.at_level(logging.WARNING):
        assert started_ref(endpoint.environment) is None
    assert "when this task stops, that proves nothing" in caplog.text
