"""Serve the Chalice application on loopback, as API Gateway does in front of Lambda.

Chalice's own local gateway makes the event; the server is ours, because Chalice's prints, answers unknown routes
with 403, reads bodies of any size and cuts answers when it stops.
"""

from __future__ import annotations

import base64
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from chalice.app import Chalice
from chalice.config import Config
from chalice.local import ForbiddenError, LocalChalice, LocalGateway, LocalGatewayException

from ..entrypoints.api.routing import problem_answer
from ..kernel.errors import LocalStackFailed, Malformed, MethodNotAllowed, NotFound, TidemillError, TooLarge
from ..kernel.limits import REQUEST_BODY_BYTES

LOOPBACK = "127.0.0.1"
_LOGGER = logging.getLogger("tidemill.local.api")
_IDLE_SECONDS = 65
_DRAIN_SECONDS = 10.0

Reply = tuple[int, list[tuple[str, str]], bytes]


class ApiServer:
    """The API on ``127.0.0.1``; ``port`` 0 takes a free one."""

    def __init__(self, app: Chalice, *, new_request_id: Callable[[], str], port: int = 0) -> None:
        _one_request_per_thread(app)
        self._gateway = _Gateway(app, new_request_id)
        self._port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def bind(self) -> str:
        """Take the port; returns ``http://127.0.0.1:<port>``. One in use raises ``LocalStackFailed``.

        Whoever connects now waits until ``start``.
        """
        try:
            self._server = _Server((LOOPBACK, self._port), self._gateway)
        except OSError as error:
            raise LocalStackFailed(
                f"port {self._port} of {LOOPBACK} cannot be used ({error.strerror}); "
                "free it, choose another with --port, or leave --port out to take a free one"
            ) from error
        return f"http://{LOOPBACK}:{self._server.server_port}"

    def start(self) -> None:
        """Answer requests from now on."""
        if self._server is None:
            raise LocalStackFailed("the API has no port yet")
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="api", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Accept nothing more, let requests in progress finish (bounded), close every connection."""
        if self._server is None:
            return
        if self._thread is not None:
            self._server.shutdown()
            self._server.drain(_DRAIN_SECONDS)
            self._thread.join(_DRAIN_SECONDS)
        self._server.server_close()
        self._server = self._thread = None


class _Gateway:
    """From one HTTP request to one answer, without any socket."""

    def __init__(self, app: Chalice, new_request_id: Callable[[], str]) -> None:
        self._gateway = LocalGateway(app, Config.create(chalice_app=app, project_dir=".", chalice_stage="local"))
        self._new_request_id = new_request_id

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Reply:
        try:
            response = self._gateway.handle_request(method=method, path=path, headers=headers, body=body)
        except LocalGatewayException as error:
            return self.problem(_gateway_error(error, path), path)
        flat = list(_flat(response.get("headers") or {}, response.get("multiValueHeaders") or {}))
        return int(response["statusCode"]), flat, _body_bytes(response)

    def problem(self, error: TidemillError, path: str) -> Reply:
        """What the gateway itself answers, before or without the application."""
        answer = problem_answer(error, path.partition("?")[0], self._new_request_id())
        headers = [(name, str(value)) for name, value in answer.headers.items()]
        return answer.status_code, headers, str(answer.body).encode()


def _gateway_error(error: LocalGatewayException, path: str) -> TidemillError:
    # Without an authorizer of Chalice's the gateway refuses only routes that it does not know.
    if isinstance(error, ForbiddenError):
        return NotFound(f"there is no {path.partition('?')[0]} here")
    return TidemillError(type(error).__name__)


def _flat(single: Mapping[str, str], several: Mapping[str, Iterable[str]]) -> Iterable[tuple[str, str]]:
    yield from ((name, str(value)) for name, value in single.items())
    yield from ((name, str(value)) for name, values in several.items() for value in values)


def _body_bytes(response: Mapping[str, Any]) -> bytes:
    body = response.get("body") or b""
    if response.get("isBase64Encoded"):
        return base64.b64decode(body)
    return body.encode() if isinstance(body, str) else bytes(body)


def _one_request_per_thread(app: Chalice) -> None:
    # What `chalice local` does, too: Lambda answers one request at a time, and threads do not.
    if not isinstance(app, LocalChalice):
        app.__class__ = type("ThreadedChalice", (LocalChalice, type(app)), {})


class _Server(ThreadingHTTPServer):
    """Knows its connections, so that a stop neither cuts an answer nor waits for an idle client."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], gateway: _Gateway) -> None:
        self.gateway = gateway
        self._changed = threading.Condition()
        self._working = 0
        self._connections: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._changed:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _LOGGER.debug("connection %s from %s broke", request, client_address)

    def work(self, change: int) -> None:
        """Count requests in progress."""
        with self._changed:
            self._working += change
            self._changed.notify_all()

    def drain(self, seconds: float) -> None:
        """Wait for requests in progress, then close all connections."""
        with self._changed:
            self._changed.wait_for(lambda: self._working == 0, timeout=seconds)
            for connection in self._connections:
                _hang_up(connection)


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        _LOGGER.debug("a connection was closed already: %s", error)


class _Handler(BaseHTTPRequestHandler):
    """One connection with its requests, one after another."""

    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = _IDLE_SECONDS

    def _handle(self) -> None:
        self.server.work(+1)
        try:
            self._send(*self._reply())
        finally:
            self.server.work(-1)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _handle  # noqa: N815  # the base's names

    def _reply(self) -> Reply:
        gateway = self.server.gateway
        try:
            body = self._read_body()
        except TidemillError as error:
            self.close_connection = True  # the rest of the body stays unread
            return gateway.problem(error, self.path)
        return gateway.answer(self.command, self.path, dict(self.headers), body)

    def _read_body(self) -> bytes | None:
        if "transfer-encoding" in self.headers:
            raise Malformed("send the body with a Content-Length, not in chunks")
        text = self.headers.get("content-length", "0")
        if not (text.isascii() and text.isdigit()):
            raise Malformed(f"Content-Length: {text[:40]!r} is not a number of bytes")
        if int(text) > REQUEST_BODY_BYTES:
            raise TooLarge(f"the body has {int(text)} bytes and {REQUEST_BODY_BYTES} are allowed")
        return self.rfile.read(int(text)) if int(text) else None

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in {"content-length", "connection"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base would answer as HTML: an unreadable request, or a method that HTTP does not know."""
        self.close_connection = True
        unknown_method = code == HTTPStatus.NOT_IMPLEMENTED
        error = MethodNotAllowed() if unknown_method else Malformed(explain or message or "the request cannot be read")
        self._send(*self.server.gateway.problem(error, getattr(self, "path", "/")))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name
        _LOGGER.debug(format, *args)
