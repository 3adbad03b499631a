"""Make moto atomic.

moto keeps its state in plain dictionaries and lists and answers each request on a thread of its own. Without a lock
several writers win one conditional update, counters lose additions, a deletion drops messages that are sent at the
same moment, and a listing fails while an object is stored (platform.md).
"""

from __future__ import annotations

import functools
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

from flask import has_request_context, request
from moto.dynamodb.responses import DynamoHandler
from moto.s3.models import S3Backend
from moto.sqs.models import SQSBackend

from ..kernel.clock import SystemClock

_LOCK = threading.RLock()
_INSTALLED = "tidemill_lock_installed"
_SQS_WAIT_SECONDS = 0.1
_CLOCK = SystemClock()

_LOCKED: tuple[tuple[type, tuple[str, ...]], ...] = (
    (DynamoHandler, ("call_action",)),
    (SQSBackend, ("create_queue", "send_message", "delete_message", "change_message_visibility")),
    (S3Backend, ("create_bucket", "put_object", "delete_object", "get_object", "list_objects", "list_objects_v2")),
)


def install_lock() -> None:
    """Put one re-entrant lock around everything that reads or changes moto's state. Repeating it changes nothing."""
    with _LOCK:
        if getattr(DynamoHandler, _INSTALLED, False):
            return
        for owner, names in _LOCKED:
            for name in names:
                setattr(owner, name, _locked(getattr(owner, name)))
        SQSBackend.receive_message = _receiving(SQSBackend.receive_message)  # type: ignore[method-assign]  # the point of it
        setattr(DynamoHandler, _INSTALLED, True)


def _locked(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def locked(*arguments: Any, **named: Any) -> Any:
        with _LOCK:
            return call(*arguments, **named)

    return locked


def _receiving(receive: Callable[..., Any]) -> Callable[..., Any]:
    # A long poll must not hold the lock, so it becomes short polls under the lock and waits without it. As in SQS, a
    # client that has gone takes no message: moto would hide it from everybody for its whole visibility time-out.
    @functools.wraps(receive)
    def receive_message(
        backend: Any, queue_name: str, count: int, wait_seconds_timeout: int, *arguments: Any, **named: Any
    ) -> Any:
        deadline = _CLOCK.elapsed_seconds() + int(wait_seconds_timeout or 0)
        while True:
            with _LOCK:
                messages = receive(backend, queue_name, count, 0, *arguments, **named)
            if messages or _CLOCK.elapsed_seconds() >= deadline:
                return messages
            backend.get_queue(queue_name).wait_for_messages(_SQS_WAIT_SECONDS)
            if _client_has_gone():
                return []

    return receive_message


def _client_has_gone() -> bool:
    """Whether the client of the request being served has closed its connection: readable, and nothing to read."""
    connection: socket.socket | None = request.environ.get("werkzeug.socket") if has_request_context() else None
    if connection is None:
        return False
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""
