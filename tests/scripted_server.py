"""A real HTTP server on loopback that answers by a script and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True)
class Reply:
    """One answer; ``dropped`` closes the connection without one, as after a lost reply."""

    status: int = 200
    content: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    dropped: bool = False


Script = Callable[[Asked], Reply]


def good(body: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(status, json.dumps(body).encode(), {"content-type": "application/json", **headers})


def problem(status: int, code: str, detail: str = "that went wrong", **more: Any) -> Reply:
    body = {"type": f"urn:tidemill:problem:{code}", "title": code, "status": status, "detail": detail, "code": code}
    content = json.dumps({**body, "request_id": "req_of_the_server", **more}).encode()
    return Reply(status, content, {"content-type": "application/problem+json"})


DROPPED = Reply(dropped=True)


class ScriptedServer:
    """``answer(script)`` decides every answer; ``asked`` holds the requests in order."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._script: Script = lambda _: good({})
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def answer(self, script: Script) -> None:
        self._script = script

    def answer_in_turn(self, *replies: Reply) -> None:
        """One answer after the other; the last one again and again."""
        left = list(replies)

        def script(_: Asked) -> Reply:
            with self._lock:
                return left.pop(0) if len(left) > 1 else left[0]

        self.answer(script)

    def paths(self) -> list[str]:
        return [f"{one.method} {one.path}" for one in self.asked]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                size = int(self.headers.get("content-length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, self.path, headers, self.rfile.read(size))
                with server._lock:
                    server.asked.append(asked)
                reply = server._script(asked)
                self.close_connection = True
                if reply.dropped:
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply.content)))
                self.end_headers()
                self.wfile.write(reply.content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815  # the names that http.server calls

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of http.server
                return

        return Handler


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    thread = threading.Thread(target=server._http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server._http.shutdown()
        server._http.server_close()
        thread.join()
