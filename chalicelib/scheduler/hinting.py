"""Raising the hint at the end of a pass, so that the shard may sleep (scheduler.md 5.7)."""

from __future__ import annotations

from datetime import datetime, timedelta

from ..cron import tzdata_version
from ..database import Transaction, load_queries
from ..kernel.limits import ACCEPT_SECONDS, HINT_LONGEST_SECONDS, RUN_WAITING_SECONDS, SCAN_SECONDS, START_SECONDS
from ..leases.fence import HINT_CLASS
from ..leases.fence import QUERIES as FENCE_QUERIES
from ..leases.hints import Hints, Sleep
from ..leases.lowering import all_shards, partitions_of
from .leadership import Leader

QUERIES = load_queries(__package__)


def watch_writers(leader: Leader, hints: Hints) -> int | None:
    """Before a pass looks at anything: what its raise will be conditional on, ``None`` when it must not raise.

    A writer that the pass does not see either lowers the hint from here on, or has lowered it before and finds the
    sequence moved; in both cases the generation moves. Watching only while the hint is raised would not do: a run that
    is queued between the claims and the raise would sleep until the shard's next work.
    """
    generation = hints.generation(leader.shard)
    return generation if leader.write(lambda tx: _move_sequence(tx, leader.shard)) else None


def raise_hint(leader: Leader, hints: Hints, generation: int | None, since: datetime | None = None) -> bool:
    """Let the shard sleep until its next work; ``False`` when a writer came since ``generation`` was read.

    ``since`` is when the pass began (now, when there was none): a delayed run that became due later is work. The moment at
    which a run has waited long enough to hold others back is none: it starts nothing by itself, and whatever frees what
    is waited for wakes the shards of all that wait.
    """
    if generation is None:
        return False
    sleep = leader.write(lambda tx: _sleep(tx, leader.shard, since or tx.now))
    return hints.raise_to(leader.shard, generation, sleep)


def _move_sequence(tx: Transaction, shard: int) -> bool:
    """``False`` when a writer is between its look at the sequence and its commit."""
    granted = tx.row(FENCE_QUERIES["try_lock_hint"], lock_class=HINT_CLASS, shard=shard)
    if granted is None or not granted["granted"]:
        return False
    tx.execute(FENCE_QUERIES["move_hint_sequence"], shard=shard)
    return True


def _sleep(tx: Transaction, shard: int, since: datetime) -> Sleep:
    row = tx.row(
        QUERIES["next_work"],
        shard=shard,
        since=since,
        scan_seconds=SCAN_SECONDS,
        waiting_seconds=RUN_WAITING_SECONDS,
        start_seconds=START_SECONDS,
        accept_lambda_seconds=ACCEPT_SECONDS["lambda"],
        accept_container_seconds=ACCEPT_SECONDS["container"],
    )
    longest = tx.now + timedelta(seconds=HINT_LONGEST_SECONDS)
    until = min(row["next_at"] or longest, longest) if row else longest
    shards = len(all_shards(tx))
    watching = tx.row(QUERIES["watches_boots"], partitions=partitions_of(shard, shards))
    return Sleep(until, tzdata_version(), shards, active=bool(watching and watching["active"]))
