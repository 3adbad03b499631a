"""The messages of an SQS event, and the names of the queues that they come from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...kernel.clock import parse_instant
from ...kernel.errors import Malformed
from ...settings import read_settings

if TYPE_CHECKING:
    from ...scheduler.service import VisitKind


def queue_name(queue: str) -> str:
    """The AWS name of a queue; the stage is an environment variable when Chalice packages, too."""
    return read_settings().name_of(queue)


def messages_of(event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The JSON objects in the records' bodies; one that is none is refused, so that its queue dead-letters it."""
    for record in event["Records"]:
        try:
            message = json.loads(record["body"])
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise Malformed("the message is not a JSON object")
        yield message


def shard_of(message: Mapping[str, Any]) -> int:
    """The shard that a message of the queues ``tick`` and ``recovery`` names."""
    shard = message.get("shard")
    if not isinstance(shard, int) or isinstance(shard, bool) or shard < 0:
        raise Malformed("the message names no shard")
    return shard


def kind_of(message: Mapping[str, Any]) -> VisitKind:
    """Why a message of the queue ``tick`` was sent; one of before counts as a wake-up."""
    kinds: dict[object, VisitKind] = {"minute": "minute", "due": "due", "maintenance": "maintenance"}
    return kinds.get(message.get("kind"), "wake")


def due_at_of(message: Mapping[str, Any]) -> datetime | None:
    """The due second for which a message was sent ahead."""
    text = message.get("due_at")
    if text is None:
        return None
    try:
        return parse_instant(str(text))
    except ValueError:
        raise Malformed("the message's due_at is no instant") from None
