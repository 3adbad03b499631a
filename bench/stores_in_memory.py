"""What lies outside the process beside Postgres, in memory, with every call counted."""

from __future__ import annotations

import queue
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from queue import Empty
from typing import Any

from chalicelib.cloud.ports import Refusal
from tests.doubles import MemoryQueues, MemoryTable

_MESSAGES_PER_CALL = 10


class CountedQueues(MemoryQueues):
    """Queues that count what is sent to each and keep nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.sends: Counter[str] = Counter()

    def send(self, queue: str, body: str, *, delay_seconds: int = 0) -> None:
        """Count."""
        del body, delay_seconds
        self.sends[queue] += 1


class DeliveringQueues(CountedQueues):
    """Queues that also deliver, once and in order; ``calls`` counts requests of SQS, ten messages of a batch in each."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self._waiting: defaultdict[str, queue.SimpleQueue[str]] = defaultdict(queue.SimpleQueue)

    def send(self, queue: str, body: str, *, delay_seconds: int = 0) -> None:
        """Deliver at once; what is delayed is for a time beyond the benchmark."""
        self.calls["send"] += 1
        self._put(queue, body, delay_seconds)

    def send_many(self, queue: str, bodies: Sequence[str]) -> None:
        """Deliver them, ten a call."""
        self.calls["send"] += -(-len(bodies) // _MESSAGES_PER_CALL)
        for body in bodies:
            self._put(queue, body, 0)

    def take(self, queue: str, seconds: float | None = None) -> str | None:
        """The next message, received and deleted; ``None`` when none comes in time (``None``: when none is there)."""
        try:
            body = self._waiting[queue].get(block=seconds is not None, timeout=seconds)
        except Empty:
            return None
        self.calls["receive"] += 1
        self.calls["delete"] += 1
        return body

    def _put(self, queue: str, body: str, delay_seconds: int) -> None:
        self.sends[queue] += 1
        if delay_seconds == 0:
            self._waiting[queue].put(body)


class CountedTable(MemoryTable):
    """A table that counts its reads (one per item or partition) and its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def put_new(self, pk: str, sk: str, attributes: Mapping[str, Any]) -> Refusal | None:
        """Count, and write."""
        self.writes += 1
        return super().put_new(pk, sk, attributes)

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
        """Count, and write."""
        self.writes += 1
        return super().update(pk, sk, expression=expression, condition=condition, names=names, values=values)

    def delete(self, pk: str, sk: str, *, owner_token: str) -> bool:
        """Count, and delete."""
        self.writes += 1
        return super().delete(pk, sk, owner_token=owner_token)

    def remove(self, pk: str, sk: str) -> None:
        """Count, and delete."""
        self.writes += 1
        super().remove(pk, sk)
