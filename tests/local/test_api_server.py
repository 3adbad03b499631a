import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from chalice.app import Chalice, Response

from chalicelib.kernel.errors import LocalStackFailed
from chalicelib.kernel.limits import REQUEST_BODY_BYTES
from chalicelib.local.api_server import ApiServer

BOUND = 10.0


class Served:
    """A small application behind the server, with a route that waits for the test."""

    def __init__(self) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()
        app = Chalice("served", configure_logs=False)

        @app.route("/echo/{name}", methods=["POST", "HEAD"], content_types=[])
        def echo(name: str) -> Response:
            assert app.current_request is not None
            raw = app.current_request.raw_body
            text = json.dumps({"name": name, "body": raw if isinstance(raw, str) else raw.decode()})
            return Response(body=text, headers={"Content-Type": "application/json", "X-Own": "1"}, status_code=201)

        @app.route("/slow", methods=["GET"])
        def slow() -> Response:
            self.entered.set()
            self.go_on.wait(BOUND)
            return Response(body="done", headers={"Content-Type": "text/plain"})

        self.server = ApiServer(app, new_request_id=lambda: "req_test")
        self.url = self.server.bind()
        self.server.start()
        self.port = int(self.url.rpartition(":")[2])

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND)


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.go_on.set()
    served.server.stop()


def _problem(answer: http.client.HTTPResponse) -> dict[str, Any]:
    assert answer.getheader("Content-Type") == "application/problem+json"
    problem: dict[str, Any] = json.loads(answer.read())
    assert problem["request_id"] == answer.getheader("X-Request-Id") == "req_test"
    assert problem["status"] == answer.status
    return problem


def test_requests_on_one_kept_connection(served: Served) -> None:
    connection = served.connection()
    for body in ("one", "two"):
        connection.request("POST", "/echo/a%2Fb?x=1", body=body)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("X-Own")) == (201, "1")
        assert json.loads(answer.read()) == {"name": "a%2Fb", "body": body}
    connection.close()


def test_head_has_no_body(served: Served) -> None:
    connection = served.connection()
    connection.request("HEAD", "/echo/a")
    assert connection.getresponse().read() == b""
    connection.request("POST", "/echo/a", body="still in step")
    assert connection.getresponse().status == 201
    connection.close()


def test_concurrent_requests_keep_their_own_bodies(served: Served) -> None:
    def ask(number: int) -> str:
        connection = served.connection()
        connection.request("POST", f"/echo/{number}", body=f"body-{number}")
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return f"{answer['name']} {answer['body']}"

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(64)))
    assert answers == [f"{number} body-{number}" for number in range(64)]


def test_unknown_route_is_a_problem_document(served: Served) -> None:
    connection = served.connection()
    connection.request("GET", "/nowhere?secret=1", headers={"Authorization": "Bearer tmo_secret"})
    problem = _problem(connection.getresponse())
    assert (problem["status"], problem["code"], problem["instance"]) == (404, "not_found", "/nowhere")
    assert "tmo_secret" not in json.dumps(problem)
    connection.close()


def test_body_over_the_limit_is_refused_before_it_is_read(served: Served) -> None:
    connection = served.connection()
    connection.putrequest("POST", "/echo/a")
    connection.putheader("Content-Length", str(REQUEST_BODY_BYTES + 1))
    connection.endheaders()
    assert _problem(connection.getresponse())["code"] == "too_large"
    connection.close()


@pytest.mark.parametrize(
    "header", [("Content-Length", "-1"), ("Content-Length", "ten"), ("Transfer-Encoding", "chunked")]
)
def test_body_without_a_length_is_refused(served: Served, header: tuple[str, str]) -> None:
    connection = served.connection()
    connection.putrequest("POST", "/echo/a")
    connection.putheader(*header)
    connection.endheaders()
    assert _problem(connection.getresponse())["code"] == "malformed"
    connection.close()


def test_method_that_http_does_not_know(served: Served) -> None:
    connection = served.connection()
    connection.request("BREW", "/echo/a")
    assert _problem(connection.getresponse())["code"] == "method_not_allowed"
    connection.close()


def test_stop_lets_a_request_finish_and_hangs_up_on_idle_clients(served: Served) -> None:
    idle = socket.create_connection(("127.0.0.1", served.port), timeout=BOUND)
    busy = served.connection()
    busy.request("GET", "/slow")
    assert served.entered.wait(BOUND)
    stopper = threading.Thread(target=served.server.stop)
    stopper.start()
    served.go_on.set()
    assert busy.getresponse().read() == b"done"
    stopper.join(BOUND)
    assert not stopper.is_alive()
    assert idle.recv(1) == b""
    idle.close()
    busy.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", served.port), timeout=BOUND)


def test_port_in_use_names_the_port_and_the_option(served: Served) -> None:
    second = ApiServer(Chalice("second", configure_logs=False), new_request_id=lambda: "req_test", port=served.port)
    with pytest.raises(LocalStackFailed, match=rf"port {served.port} .*--port"):
        second.bind()
