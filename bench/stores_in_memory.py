"""What lies outside the process beside Postgres, in memory, with every call counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from chalicelib.cloud.ports import Refusal
from tests.doubles import MemoryQueues, MemoryTable


class CountedQueues(MemoryQueues):
    """Queues that count what is sent to each and keep nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.sends: Counter[str] = Counter()

    def send(self, queue: str, body: str, *, delay_seconds: int = 0) -> None:
        """Count."""
        del body, delay_seconds
        self.sends[queue] += 1


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
