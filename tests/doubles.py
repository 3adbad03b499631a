"""Doubles of what lies outside: the object store as a dictionary, and a clock that is set by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from chalicelib.cloud.ports import QueueMessage, Refusal
from chalicelib.kernel.errors import Unavailable


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

    def receive(self, queue: str, *, wait_seconds: int, maximum: int = 1) -> Sequence[QueueMessage]:
        self._check()
        return [QueueMessage(body, str(at), 1) for at, body in enumerate(self.sent.get(queue, [])[:maximum])]

    def delete(self, queue: str, receipt: str) -> None:
        self._check()
        self.sent[queue].pop(int(receipt))

    def hide(self, queue: str, receipt: str, seconds: int) -> None:
        self._check()


class MemoryLeases:
    """``cloud.ports.LeaseTable`` in memory; an update is recorded with its values, not computed."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], dict[str, Any]] = {}
        self.updates: list[tuple[str, Mapping[str, Any]]] = []

    def put_new(self, pk: str, sk: str, attributes: Mapping[str, Any]) -> Refusal | None:
        if (pk, sk) in self.items:
            return Refusal(self.items[pk, sk])
        self.items[pk, sk] = {"pk": pk, "sk": sk, **attributes}
        return None

    def update(
        self,
        pk: str,
        sk: str,
        *,
        expression: str,
        condition: str,
        names: Mapping[str, str],
        values: Mapping[str, Any],
    ) -> Mapping[str, Any] | Refusal:
        if (pk, sk) not in self.items:
            return Refusal(None)
        self.updates.append((sk, values))
        return self.items[pk, sk]

    def get(self, pk: str, sk: str) -> Mapping[str, Any] | None:
        return self.items.get((pk, sk))

    def partition(self, pk: str) -> Sequence[Mapping[str, Any]]:
        return [item for (key, _), item in sorted(self.items.items()) if key == pk]

    def delete(self, pk: str, sk: str, *, owner_token: str) -> bool:
        item = self.items.get((pk, sk))
        if item is None or item["owner_token"] != owner_token:
            return False
        del self.items[pk, sk]
        return True
