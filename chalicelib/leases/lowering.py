"""The one door for writers that may make something due earlier (scheduler.md 5.7, S13).

The hint is lowered before the commit, and the commit happens only if no raise came between: a raiser that computed its
time without this write either finds the generation moved and fails, or has moved ``hint_seq``, which is seen here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ..database import Database, Transaction, Write, load_queries
from ..kernel.errors import Unavailable
from ..kernel.limits import LOWER_ATTEMPTS
from .fence import HINT_CLASS
from .hints import Hints

Result = TypeVar("Result")
FindShards = Callable[[Transaction], Sequence[int]]

QUERIES = load_queries(__package__)


class _Raised(Exception):  # noqa: N818 - a signal, not an error
    """A hint was raised between our lowering and our commit: lower again."""


def all_shards(tx: Transaction) -> list[int]:
    """Every shard: for what a pool, a location or a target means to all of them."""
    return [row["shard"] for row in tx.rows(QUERIES["all_shards"])]


def _always(_: object) -> bool:
    return True


def never(_: object) -> bool:
    """Wake nobody: the write frees nothing and makes nothing due at once."""
    return False


class HintLowering:
    """Runs a write in its own transaction behind lowered hints, and wakes the shards after the commit.

    ``wake`` must not raise: a wake-up that is lost costs at most a minute.
    """

    def __init__(self, database: Database, hints: Hints, wake: Callable[[Sequence[int]], None]) -> None:
        self._database = database
        self._hints = hints
        self._wake = wake

    def lowered(
        self,
        find_shards: FindShards,
        operation: Callable[[Transaction], Result],
        *,
        wakes: Callable[[Result], bool] = _always,
        write: Write | None = None,
    ) -> Result:
        """Lower the hints of the shards concerned, write, commit, and wake them if ``wakes`` says so of the result.

        ``write`` is a pass's own fenced writer, for what it frees in other shards. Raises ``Unavailable`` when a hint
        cannot be lowered: nothing was written, and repeating is safe.
        """
        for _ in range(LOWER_ATTEMPTS):
            before = self._sequences(find_shards)
            for shard in before:
                self._hints.lower(shard)
            try:
                result = (write or self._database.write)(partial(_guarded, before=before, operation=operation))
            except _Raised:
                continue
            if wakes(result):
                self._wake(list(before))
            return result
        raise Unavailable("the scheduler's hint moves too fast; repeat in a few seconds")

    def _sequences(self, find_shards: FindShards) -> dict[int, int]:
        with self._database.transaction() as tx:
            return _read(tx, sorted(set(find_shards(tx))))


def _read(tx: Transaction, shards: Sequence[int]) -> dict[int, int]:
    return {row["shard"]: row["hint_seq"] for row in tx.rows(QUERIES["hint_sequences"], shards=list(shards))}


def _guarded(tx: Transaction, *, before: dict[int, int], operation: Callable[[Transaction], Result]) -> Result:
    if before:
        tx.rows(QUERIES["lock_hints_shared"], lock_class=HINT_CLASS, shards=list(before))
        if _read(tx, list(before)) != before:
            raise _Raised
    return operation(tx)
