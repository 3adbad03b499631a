"""Retention (scheduler.md 16): one loop drains every policy, a page per fenced transaction.

It runs in the invocation that leads shard 0, asked for by a pass at most once an hour and by the hint at least once a
day. It holds the shard's lease, so it stops at the first wish for it; what is left is asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from ..database import Transaction, load_queries
from ..kernel.clock import Clock
from ..kernel.limits import (
    RETENTION_BACKFILLS_PER_PAGE,
    RETENTION_EVERY_SECONDS,
    RETENTION_NODES_PER_PAGE,
    RETENTION_ROWS_PER_PAGE,
    RETENTION_SECONDS,
    RETENTION_SNAPSHOTS_PER_PAGE,
)
from ..settings import Kept
from .leadership import Leader

QUERIES = load_queries(__package__, "retention.sql")

Keyset = tuple[datetime, str]
BEFORE_ALL: Keyset = (datetime(1, 1, 1, tzinfo=UTC), "")


@dataclass(frozen=True, slots=True)
class Page:
    """What one transaction removed; ``last`` is where the next one goes on, ``None`` when nothing is left."""

    removed: int
    last: Keyset | None


# Removes one page of what is older than ``before``, behind a keyset.
RemovePage = Callable[[Transaction, datetime, Keyset], Page]


def _by_age(query: str, page: int, tx: Transaction, before: datetime, after: Keyset) -> Page:
    """A table whose rows stand alone: the oldest ones, until a page is not full."""
    removed = tx.execute(QUERIES[query], before=before, page=page)
    return Page(removed, after if removed == page else None)


def _runs(tx: Transaction, before: datetime, after: Keyset) -> Page:
    rows = tx.rows(
        QUERIES["lock_ended_runs"], before=before, after_at=after[0], after_id=after[1], page=RETENTION_ROWS_PER_PAGE
    )
    if not rows:
        return Page(0, None)
    run_ids = [row["run_id"] for row in rows]
    gone = {
        (row["created_at"], row["run_id"])
        for row in tx.rows(QUERIES["remove_runs"], run_ids=run_ids, nodes=RETENTION_NODES_PER_PAGE)
    }
    locked = [(row["created_at"], row["run_id"]) for row in rows]
    full = len(rows) == RETENTION_ROWS_PER_PAGE or locked[-1] not in gone
    return Page(len(gone), (max(gone) if gone else locked[-1]) if full else None)


def _snapshots(tx: Transaction, before: datetime, after: Keyset) -> Page:
    if after == BEFORE_ALL:
        tx.execute(QUERIES["note_snapshots_in_use"])
    rows = tx.rows(
        QUERIES["lock_unused_snapshots"],
        before=before,
        after_at=after[0],
        after_id=after[1],
        page=RETENTION_SNAPSHOTS_PER_PAGE,
    )
    if not rows:
        return Page(0, None)
    gone = tx.rows(QUERIES["remove_snapshots"], snapshot_ids=[row["snapshot_id"] for row in rows])
    full = len(rows) == RETENTION_SNAPSHOTS_PER_PAGE
    return Page(len(gone), (rows[-1]["used_at"], rows[-1]["snapshot_id"]) if full else None)


# In this order: a run goes after its backfill, a snapshot after its runs.
POLICIES: Sequence[tuple[Kept, RemovePage]] = (
    ("ticks", partial(_by_age, "remove_ticks", RETENTION_ROWS_PER_PAGE)),
    ("heartbeats", partial(_by_age, "remove_heartbeats", RETENTION_ROWS_PER_PAGE)),
    ("alerts", partial(_by_age, "remove_alerts", RETENTION_ROWS_PER_PAGE)),
    ("tokens", partial(_by_age, "remove_tokens", RETENTION_ROWS_PER_PAGE)),
    ("backfills", partial(_by_age, "remove_backfills", RETENTION_BACKFILLS_PER_PAGE)),
    ("runs", _runs),
    ("snapshots", _snapshots),
)


class Retention:
    """What is kept for how many ``days``, by policy, and removing the rest."""

    def __init__(self, clock: Clock, days: Mapping[Kept, int], seconds: float = RETENTION_SECONDS) -> None:
        self._clock = clock
        self._days = days
        self._seconds = seconds

    def drain(self, leader: Leader, removed: dict[str, int]) -> bool:
        """Remove what is past its time, counted in ``removed``; ``False`` when time ran out or the shard was wanted."""
        wanted, until = leader.wanted, self._clock.elapsed_seconds() + self._seconds
        for policy, remove in POLICIES:
            after: Keyset | None = BEFORE_ALL
            while after is not None:
                if leader.wanted != wanted or self._clock.elapsed_seconds() >= until:
                    return False
                page = leader.write(partial(self._page, policy, remove, after))
                removed[policy] = removed.get(policy, 0) + page.removed
                leader.renew()
                after = page.last
        leader.write(lambda tx: tx.execute(QUERIES["finish_retention"]))
        return True

    def _page(self, policy: Kept, remove: RemovePage, after: Keyset, tx: Transaction) -> Page:
        return remove(tx, tx.now - timedelta(days=self._days[policy]), after)


def ask_when_due(tx: Transaction) -> bool:
    """In a pass over shard 0: whether a retention is owed; it is then counted as asked for.

    A new store has nothing to remove: its first hour begins here.
    """
    row = tx.row(QUERIES["retention_asked"])
    if row is not None and row["asked_at"] > tx.now - timedelta(seconds=RETENTION_EVERY_SECONDS):
        return False
    tx.execute(QUERIES["ask_for_retention"])
    return row is not None


def retention_finished_at(tx: Transaction) -> datetime | None:
    """When retention last came to its end."""
    row = tx.row(QUERIES["retention_state"])
    return row["finished_at"] if row else None
