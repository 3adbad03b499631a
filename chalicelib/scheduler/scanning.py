"""The platform scan: what people are told without asking, once for as long as it lasts (scheduler.md 6.4, S24).

A pass looks twice. When it begins it sees which shards nobody has scheduled, its own among them, before it makes up for
that. When everything else is done it opens what holds and closes what has ended. A constant number of statements, each by
its indexes, whatever the number of runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..alerts import AlertFact, open_alerts
from ..database import Database, Transaction, load_queries
from ..kernel.clock import instant_text
from ..kernel.limits import (
    ALERTS_PER_SCAN,
    CLOCK_SKEW_SECONDS,
    LAUNCH_ALERT_SECONDS,
    RUN_OVERDUE_SECONDS,
    RUN_WAITING_SECONDS,
    SCAN_OVERLAP_SECONDS,
    SCHEDULER_LATE_SECONDS,
)
from ..schedules.evaluation import UNCOMPUTABLE_RETRY_SECONDS

QUERIES = load_queries(__package__, "scanning.sql")


@dataclass(frozen=True, slots=True)
class LateShard:
    """A shard with work due since ``due_at`` and no finished pass since ``passed_at`` (``None``: never)."""

    shard: int
    due_at: datetime
    passed_at: datetime | None


def late_shards(tx: Transaction) -> list[LateShard]:
    """The shards that nobody has scheduled for three minutes although they have work. Reads only; any process may ask."""
    rows = tx.rows(QUERIES["late_shards"], late_seconds=SCHEDULER_LATE_SECONDS)
    return [LateShard(row["shard"], row["due_at"], row["passed_at"]) for row in rows]


def unscheduled(database: Database) -> list[int]:
    """``late_shards`` by their numbers, for whoever must tell that nothing runs."""
    with database.transaction() as tx:
        return [late.shard for late in late_shards(tx)]


@dataclass(slots=True)
class Scan:
    """What one pass knows that the store does not tell, and its two looks.

    ``skew_seconds`` is by how much the clock here differs from the database's; ``uncomputable`` are schedules with what is
    wrong with them; ``dead_letters`` are the depths of dead-letter queues, ``None`` when nobody has looked.
    """

    shard: int
    skew_seconds: float = 0.0
    uncomputable: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    dead_letters: Mapping[str, int] | None = None
    _late: list[LateShard] = field(default_factory=list)

    def begin(self, tx: Transaction) -> datetime:
        """The look before a pass makes up for what is late; the moment of the pass."""
        self.uncomputable.clear()
        self._late = late_shards(tx)
        open_alerts(tx, [_late_fact(late) for late in self._late])
        return tx.now

    def finish(self, tx: Transaction, pass_now: datetime) -> int:
        """Open what holds, close what has ended, and note that the pass came to its end; how many alerts were opened."""
        rows = tx.rows(
            QUERIES["conditions_of_runs"],
            shard=self.shard,
            overlap_seconds=SCAN_OVERLAP_SECONDS,
            waiting_seconds=RUN_WAITING_SECONDS,
            overdue_seconds=RUN_OVERDUE_SECONDS,
            batch=ALERTS_PER_SCAN,
        )
        opened = open_alerts(tx, [*self._known(), *map(_run_fact, rows)])
        tx.execute(
            QUERIES["close_ended"],
            subject=str(self.shard),
            skewed=self._skewed,
            late=[str(late.shard) for late in self._late if late.shard != self.shard],
            looked=self.dead_letters is not None,
            dead=[queue for queue, depth in (self.dead_letters or {}).items() if depth],
            uncomputable_seconds=UNCOMPUTABLE_RETRY_SECONDS,
            kept_seconds=LAUNCH_ALERT_SECONDS,
        )
        tx.execute(QUERIES["keep_passed"], shard=self.shard, pass_now=pass_now)
        return opened

    @property
    def _skewed(self) -> bool:
        return abs(self.skew_seconds) > CLOCK_SKEW_SECONDS

    def _known(self) -> list[AlertFact]:
        facts = [AlertFact("schedule_uncomputable", trigger, detail) for trigger, detail in self.uncomputable.items()]
        if self._skewed:
            facts.append(AlertFact("clock_skew", str(self.shard), {"seconds": round(self.skew_seconds, 3)}))
        for queue, depth in (self.dead_letters or {}).items():
            if depth:
                facts.append(AlertFact("queue_dead_letter", queue, {"messages": depth}))
        return facts


def skew_of(before: datetime, database: datetime, after: datetime) -> float:
    """By how many seconds a clock here is certainly ahead (below zero: behind), read before and after the database's."""
    ahead, behind = (before - database).total_seconds(), (after - database).total_seconds()
    return max(ahead, 0.0) or min(behind, 0.0)


def _late_fact(late: LateShard) -> AlertFact:
    passed_at = None if late.passed_at is None else instant_text(late.passed_at)
    return AlertFact("scheduler_late", str(late.shard), {"due_at": instant_text(late.due_at), "passed_at": passed_at})


def _run_fact(row: Mapping[str, Any]) -> AlertFact:
    place = {name: row[name] for name in ("location", "target", "job")}
    detail = {**place, "since": instant_text(row["since"]), **row["more"]}
    return AlertFact(row["condition"], row["subject"], detail, row["episode"])
