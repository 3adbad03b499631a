"""Hints: one DynamoDB item per shard with the next time at which it may have work (scheduler.md 5.7).

A hint decides only whether to look, never that something is due. ``lowering.py`` holds the writers' side. This module
reaches no database, so that an idle tick loads no driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..cloud.ports import LeaseTable, Refusal
from ..kernel.limits import TICK_WINDOW_SECONDS

# All hints share a partition, so that one consistent query reads them, however many shards there are.
_PARTITION = "hints"
_GENERATION = {"#generation": "generation"}
_LOWERED = 0


@dataclass(frozen=True, slots=True)
class Hint:
    """``next_due`` in whole milliseconds since 1970 (0: look at once), and under which zone data it was computed.

    ``shards`` is how many shards there were when it was raised; 0 before the first raise. ``active``: there may be an
    accepted claim whose boot this shard serves, so that somebody has to watch leases.
    """

    next_due: int
    tzdata: str
    generation: int
    shards: int
    active: bool

    def may_have_work(self, now: datetime, tzdata: str) -> bool:
        """Whether a tick at ``now`` with that zone data should look at the shard."""
        return self.tzdata != tzdata or self.next_due <= _milliseconds(now + timedelta(seconds=TICK_WINDOW_SECONDS))


@dataclass(frozen=True, slots=True)
class Sleep:
    """Until when a shard has nothing to do, under which zone data that was computed, and how many shards there are.

    ``active`` says whether it serves the boot of an accepted claim.
    """

    until: datetime
    tzdata: str
    shards: int
    active: bool


def shards_to_visit(read: Mapping[int, Hint], now: datetime, tzdata: str) -> list[int] | None:
    """The shards that may have work, an absent hint counting as due; ``None`` when only the store knows the shards."""
    count = max((hint.shards for hint in read.values()), default=0)
    if count == 0:
        return None
    return [shard for shard in range(count) if shard not in read or read[shard].may_have_work(now, tzdata)]


def shards_to_watch(read: Mapping[int, Hint]) -> list[int] | None:
    """The shards whose boots have to be watched, an absent hint counting as active; ``None`` as above."""
    count = max((hint.shards for hint in read.values()), default=0)
    if count == 0:
        return None
    return [shard for shard in range(count) if shard not in read or read[shard].active]


class Hints:
    """The items of all shards."""

    def __init__(self, table: LeaseTable) -> None:
        self._table = table

    def read_all(self) -> dict[int, Hint]:
        """Every hint that there is, by one consistent read; an absent one counts as due."""
        return {int(item["sk"]): _hint(item) for item in self._table.partition(_PARTITION)}

    def lower(self, shard: int) -> None:
        """Make the shard due at once; unconditional, and any raise that began before will fail."""
        self._lower(shard, "if_not_exists(shards, :zero)", {}, active=False)

    def activate(self, shard: int) -> None:
        """The same for a shard that will have a boot to watch."""
        self._lower(shard, "if_not_exists(shards, :zero)", {}, active=True)

    def announce(self, count: int) -> None:
        """Lower every hint, and say in each that there are ``count`` shards; all are active, for boots are served anew."""
        for shard in range(count):
            self._lower(shard, ":count", {":count": count}, active=True)

    def _lower(self, shard: int, shards: str, values: Mapping[str, int], *, active: bool) -> None:
        self._table.update(
            _PARTITION,
            str(shard),
            expression="SET next_due = :zero, #generation = if_not_exists(#generation, :zero) + :one, "
            f"tzdata = if_not_exists(tzdata, :none), shards = {shards}, "
            # An item that this makes was absent, which counted as active.
            f"active = {':yes' if active else 'if_not_exists(active, :yes)'}",
            condition=None,
            names=_GENERATION,
            values={":zero": _LOWERED, ":one": 1, ":none": "", ":yes": True, **values},
        )

    def generation(self, shard: int) -> int:
        """What a raise is conditional on."""
        item = self._table.get(_PARTITION, str(shard))
        return 0 if item is None else int(item["generation"])

    def raise_to(self, shard: int, generation: int, sleep: Sleep) -> bool:
        """Let the shard sleep; ``False`` when somebody lowered the hint since ``generation``."""
        answer = self._table.update(
            _PARTITION,
            str(shard),
            expression="SET next_due = :next, tzdata = :tzdata, shards = :shards, active = :active",
            condition="#generation = :generation",
            names=_GENERATION,
            values={
                ":next": _milliseconds(sleep.until),
                ":tzdata": sleep.tzdata,
                ":shards": sleep.shards,
                ":active": sleep.active,
                ":generation": generation,
            },
        )
        return not isinstance(answer, Refusal)

    def forget(self, shard: int) -> None:
        """Remove the hint of a shard that is no more."""
        self._table.remove(_PARTITION, str(shard))


def _hint(item: Mapping[str, Any]) -> Hint:
    return Hint(
        int(item["next_due"]),
        str(item["tzdata"]),
        int(item["generation"]),
        int(item["shards"]),
        bool(item.get("active", True)),
    )


def _milliseconds(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)
