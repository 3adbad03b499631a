"""Long polls of the AWS stand-in, held open here instead of in moto.

moto answers a poll whose client has died with the next message, which is then hidden for its whole visibility time-out;
SQS does not. So the wait is taken out of the request, and moto is asked again and again while the client is there.
"""

from __future__ import annotations

import io
import json
import select
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from werkzeug.test import run_wsgi_app

from ..kernel.clock import Clock

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_RECEIVE = "AmazonSQS.ReceiveMessage"
_WAIT_MAX_SECONDS = 20
_LOOK_SECONDS = 0.05


class LongPolling:
    """A WSGI application around the stand-in's that answers ``ReceiveMessage`` when there is a message, or in time."""

    def __init__(self, application: WSGIApplication, clock: Clock) -> None:
        self._application = application
        self._clock = clock

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("HTTP_X_AMZ_TARGET") != _RECEIVE:
            return self._application(environ, start_response)
        asked = json.loads(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        until = self._clock.elapsed_seconds() + min(asked.pop("WaitTimeSeconds", 0), _WAIT_MAX_SECONDS)
        while True:
            content, status, headers = self._ask(environ, asked)
            if _final(status, content) or self._clock.elapsed_seconds() >= until or _gone(environ):
                start_response(status, headers)
                return [content]
            self._clock.sleep(_LOOK_SECONDS)

    def _ask(self, environ: WSGIEnvironment, asked: dict[str, Any]) -> tuple[bytes, str, list[tuple[str, str]]]:
        body = json.dumps({**asked, "WaitTimeSeconds": 0}).encode()
        once = {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        chunks, status, headers = run_wsgi_app(self._application, once, buffered=True)
        return b"".join(chunks), status, list(headers)


def _final(status: str, content: bytes) -> bool:
    return not status.startswith("200") or bool(json.loads(content).get("Messages"))


def _gone(environ: WSGIEnvironment) -> bool:
    """Whether the client has closed its connection: readable, and nothing to read."""
    connection: socket.socket | None = environ.get("werkzeug.socket")
    if connection is None:
        return False
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""
