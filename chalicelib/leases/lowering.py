"""The one door for writers that may make something due earlier (scheduler.md 5.7, S13).

The hint is lowered before the commit, and the commit happens only if no raise came between: a raiser that computed its
time without this write either finds the generation moved and fails, or has moved ``hint_seq``, which is seen here.

While ``hint_seq`` stands where it stood when this process lowered the hint, nobody can have raised it since: a raiser
moves it first, and cannot while a writer is between its look and its commit. So the hint is not lowered again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ..database import Database, Transaction, Write, load_queries
from ..kernel.clock import Clock, SystemClock
from ..kernel.errors import Unavailable
from ..kernel.limits import BOOT_PARTITIONS, HINT_TRUSTED_SECONDS, LOWER_ATTEMPTS
from .fence import HINT_CLASS
from .hints import Hints

Result = TypeVar("Result")
FindShards = Callable[[Transaction], Sequence[int]]

QUERIES = load_queries(__package__)


@dataclass(frozen=True, slots=True)
class _Low:
    """That a hint was lowered, and made active, when its sequence stood there; ``at`` is on this machine's stopwatch."""

    sequence: int
    active: bool
    at: float


class _NotLow(Exception):  # noqa: N818 - a signal, not an error
    """These hints are to be lowered before the write can be made; nothing was written."""

    def __init__(self, sequences: Mapping[int, int], watched: int | None) -> None:
        super().__init__("hints to be lowered")
        self.sequences = sequences
        self.watched = watched


def shard_serving(partition: int, shards: int) -> int:
    """The scheduler shard that watches the boots of a partition (scheduler.md 9)."""
    return partition % shards


def partitions_of(shard: int, shards: int) -> list[int]:
    """The partitions whose boots a shard watches; none for a shard beyond the number of partitions."""
    return [partition for partition in range(BOOT_PARTITIONS) if shard_serving(partition, shards) == shard]


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

    def __init__(
        self,
        database: Database,
        hints: Hints,
        wake: Callable[[Sequence[int]], None],
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._hints = hints
        self._wake = wake
        self._clock = clock or SystemClock()
        self._known: dict[int, _Low] = {}

    def lowered(
        self,
        find_shards: FindShards,
        operation: Callable[[Transaction], Result],
        *,
        wakes: Callable[[Result], bool] = _always,
        write: Write | None = None,
        watched_partition: int | None = None,
    ) -> Result:
        """Lower the hints of the shards concerned, write, commit, and wake them if ``wakes`` says so of the result.

        ``write`` is a pass's own fenced writer, for what it frees in other shards. ``watched_partition`` is that of a
        boot which the write gives something to do: the shard that serves it is lowered too, and becomes active. Raises
        ``Unavailable`` when a hint cannot be lowered: nothing was written, and repeating is safe.
        """
        began = self._clock.elapsed_seconds()
        guarded = partial(self._guarded, find_shards, operation, watched_partition, began)
        for _ in range(1 + LOWER_ATTEMPTS):
            try:
                shards, result = (write or self._database.write)(guarded)
            except _NotLow as missing:
                self._lower(missing)
                continue
            if wakes(result):
                self._wake(shards)
            return result
        raise Unavailable("the scheduler's hint moves too fast; repeat in a few seconds")

    def _guarded(
        self,
        find_shards: FindShards,
        operation: Callable[[Transaction], Result],
        partition: int | None,
        began: float,
        tx: Transaction,
    ) -> tuple[list[int], Result]:
        """The shards concerned and the operation's result, in a transaction in which their hints cannot be raised."""
        shards = set(find_shards(tx))
        watched = None if partition is None else shard_serving(partition, len(all_shards(tx)))
        sequences = _locked_sequences(tx, sorted(shards if watched is None else shards | {watched}))
        missing = {
            shard: sequence
            for shard, sequence in sequences.items()
            if not self._is_low(shard, sequence, began, active=shard == watched)
        }
        if missing:
            raise _NotLow(missing, watched)
        return list(sequences), operation(tx)

    def _is_low(self, shard: int, sequence: int, began: float, *, active: bool) -> bool:
        """Whether the hint is known to be low: lowered for this very call, or not long before it ``began``.

        A failover may lose the move of a raiser; it takes longer than an earlier lowering is trusted.
        """
        known = self._known.get(shard)
        if known is None or known.sequence != sequence or (active and not known.active):
            return False
        return began - known.at < HINT_TRUSTED_SECONDS

    def _lower(self, missing: _NotLow) -> None:
        for shard, sequence in missing.sequences.items():
            at, active = self._clock.elapsed_seconds(), shard == missing.watched
            (self._hints.activate if active else self._hints.lower)(shard)
            before = self._known.get(shard)
            still = before is not None and before.sequence == sequence and before.active
            self._known[shard] = _Low(sequence, active or still, at)


def _locked_sequences(tx: Transaction, shards: Sequence[int]) -> dict[int, int]:
    """How far the hints have been moved; from here to the commit nobody moves them."""
    if not shards:
        return {}
    tx.rows(QUERIES["lock_hints_shared"], lock_class=HINT_CLASS, shards=list(shards))
    return {row["shard"]: row["hint_seq"] for row in tx.rows(QUERIES["hint_sequences"], shards=list(shards))}
