"""Doubles of what lies outside: the object store as a dictionary, and a clock that is set by hand."""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from chalicelib.cloud.ports import QueueMessage, Refusal
from chalicelib.database import Database
from chalicelib.kernel.errors import Unavailable
from chalicelib.leases.hints import Hints
from chalicelib.leases.lowering import HintLowering


class MemoryObjects:
    """``cloud.ports.ObjectStore`` in memory; ``reads`` tells which objects were read."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.reads: list[str] = []

    def put(self, key: str, data: bytes, *, content_type: str = "application/octet-stream") -> None:
        self.contents[key] = data

    def get(self, key: str) -> bytes | None:
        self.reads.append(key)
        return self.contents.get(key)

    def exists(self, key: str) -> bool:
        return key in self.contents

    def keys(self, prefix: str) -> Sequence[str]:
        return sorted(key for key in self.contents if key.startswith(prefix))[:1000]

    def upload_url(self, key: str, *, expires_seconds: int = 3_600) -> str:
        return f"memory:put/{key}"

    def download_url(self, key: str, *, expires_seconds: int = 900) -> str:
        return f"memory:get/{key}"


class HandClock:
    """``kernel.clock.Clock`` whose time passes only when told; also fits ``Database(read_now=...)``."""

    def __init__(self, start: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)) -> None:
        self._now = start
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def elapsed_seconds(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._elapsed += seconds

    def read_now(self, connection: object) -> datetime:
        """What ``Database`` takes in place of the database's own clock."""
        return self._now


class MemoryQueues:
    """``cloud.ports.QueueService`` in memory: what was sent, by queue; ``broken`` makes every call fail."""

    def __init__(self) -> None:
        self.sent: dict[str, list[str]] = {}
        self.broken = False

    def _check(self) -> None:
        if self.broken:
            raise Unavailable("SQS does not answer")

    def check(self, queue: str) -> None:
        self._check()

    def send(self, queue: str, body: str, *, delay_seconds: int = 0) -> None:
        self._check()
        self.sent.setdefault(queue, []).append(body)

    def send_many(self, queue: str, bodies: Sequence[str]) -> None:
        for body in bodies:
            self.send(queue, body)

    def receive(self, queue: str, *, wait_seconds: int, maximum: int = 1) -> Sequence[QueueMessage]:
        self._check()
        return [QueueMessage(body, str(at), 1) for at, body in enumerate(self.sent.get(queue, [])[:maximum])]

    def delete(self, queue: str, receipt: str) -> None:
        self._check()
        self.sent[queue].pop(int(receipt))

    def hide(self, queue: str, receipt: str, seconds: int) -> None:
        self._check()

    def waiting(self, queue: str) -> int:
        self._check()
        return len(self.sent.get(queue, []))


class MemoryTable:
    """``cloud.ports.LeaseTable`` in memory, atomic, computing the few expressions that the product uses.

    ``updates`` records the values of each update; ``reads`` counts consistent reads; ``broken`` makes every call fail.
    """

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], dict[str, Any]] = {}
        self.updates: list[tuple[str, Mapping[str, Any]]] = []
        self.reads = 0
        self.broken = False
        self._lock = threading.RLock()

    def _check(self) -> None:
        if self.broken:
            raise Unavailable("DynamoDB does not answer")

    def put_new(self, pk: str, sk: str, attributes: Mapping[str, Any]) -> Refusal | None:
        self._check()
        with self._lock:
            if (pk, sk) in self.items:
                return Refusal(copy.deepcopy(self.items[pk, sk]))
            self.items[pk, sk] = {"pk": pk, "sk": sk, **copy.deepcopy(dict(attributes))}
        return None

    def update(
        self,
        pk: str,
        sk: str,
        *,
        expression: str,
        condition: str | None,
        names: Mapping[str, str],
        values: Mapping[str, Any],
    ) -> Mapping[str, Any] | Refusal:
        self._check()
        with self._lock:
            item = self.items.get((pk, sk))
            if condition is not None and not _holds(condition, item, names, values):
                return Refusal(copy.deepcopy(item))
            self.updates.append((sk, values))
            made = self.items.setdefault((pk, sk), {"pk": pk, "sk": sk})
            _apply(expression, made, names, values)
            return copy.deepcopy(made)

    def get(self, pk: str, sk: str) -> Mapping[str, Any] | None:
        self._check()
        self.reads += 1
        with self._lock:
            return copy.deepcopy(self.items.get((pk, sk)))

    def partition(self, pk: str) -> Sequence[Mapping[str, Any]]:
        self._check()
        self.reads += 1
        with self._lock:
            return [copy.deepcopy(item) for (key, _), item in sorted(self.items.items()) if key == pk]

    def delete(self, pk: str, sk: str, *, owner_token: str) -> bool:
        self._check()
        with self._lock:
            item = self.items.get((pk, sk))
            if item is None or item["owner_token"] != owner_token:
                return False
            del self.items[pk, sk]
        return True

    def remove(self, pk: str, sk: str) -> None:
        self._check()
        with self._lock:
            self.items.pop((pk, sk), None)


class MemoryTasks:
    """``cloud.ports.TaskService``: the last status of tasks by ARN; ``asked`` records the calls."""

    def __init__(self, statuses: Mapping[str, str] | None = None) -> None:
        self.statuses = dict(statuses or {})
        self.asked: list[list[str]] = []

    def last_statuses(self, task_arns: Sequence[str]) -> Mapping[str, str]:
        self.asked.append(list(task_arns))
        return dict(self.statuses)


def _named(text: str, names: Mapping[str, str]) -> str:
    return names.get(text, text)


def _holds(condition: str, item: Mapping[str, Any] | None, names: Mapping[str, str], values: Mapping[str, Any]) -> bool:
    """``A OR B`` of ``A AND B`` of ``attribute_exists(pk)``, ``attribute_not_exists(pk)`` and ``name = :value``."""

    def term(text: str) -> bool:
        if text == "attribute_exists(pk)":
            return item is not None
        if text == "attribute_not_exists(pk)":
            return item is None
        name, _, value = text.partition(" = ")
        return item is not None and item.get(_named(name, names)) == values[value]

    return any(all(term(part) for part in parts.split(" AND ")) for parts in condition.split(" OR "))


def _apply(expression: str, item: dict[str, Any], names: Mapping[str, str], values: Mapping[str, Any]) -> None:
    """``SET a = X, b.#c = X`` and ``REMOVE a.#b, c.#d``, with ``X`` a value, ``x + :y`` or ``if_not_exists(a, :b)``."""
    verb, _, rest = expression.partition(" ")
    for part in re.split(r", (?![^(]*\))", rest):
        target, _, source = part.partition(" = ")
        *path, last = [_named(step, names) for step in target.split(".")]
        place = item
        for step in path:
            place = place[step]
        if verb == "REMOVE":
            place.pop(last, None)
        else:
            place[last] = (
                sum(_value(text, item, names, values) for text in source.split(" + "))
                if " + " in source
                else _value(source, item, names, values)
            )


def _value(text: str, item: Mapping[str, Any], names: Mapping[str, str], values: Mapping[str, Any]) -> Any:
    absent = re.fullmatch(r"if_not_exists\((\S+), (\S+)\)", text)
    if absent is not None:
        return item.get(_named(absent[1], names), values[absent[2]])
    return copy.deepcopy(values[text]) if text in values else item[_named(text, names)]


def lowering_over(database: Database) -> HintLowering:
    """The writers' door over hints in memory, waking nobody."""
    return HintLowering(database, Hints(MemoryTable()), lambda _: None)
