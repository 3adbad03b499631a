"""Make moto atomic.

moto keeps its state in plain dictionaries and lists and answers each request on a thread of its own. Without a lock
several writers win one conditional update, counters lose additions, a deletion drops messages that are sent at the
same moment, and a listing fails while an object is stored (platform.md).
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from moto.dynamodb.responses import DynamoHandler
from moto.s3.models import S3Backend
from moto.sqs.models import SQSBackend

_LOCK = threading.RLock()
_INSTALLED = "tidemill_lock_installed"
_SQS_WAIT_SECONDS = 0.25

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
    # A long poll must not hold the lock, so it becomes short polls under the lock and waits without it.
    @functools.wraps(receive)
    def receive_message(
        backend: Any, queue_name: str, count: int, wait_seconds_timeout: int, *arguments: Any, **named: Any
    ) -> Any:
        deadline = time.monotonic() + int(wait_seconds_timeout or 0)
        while True:
            with _LOCK:
                messages = receive(backend, queue_name, count, 0, *arguments, **named)
            if messages or time.monotonic() >= deadline:
                return messages
            backend.get_queue(queue_name).wait_for_messages(_SQS_WAIT_SECONDS)

    return receive_message
