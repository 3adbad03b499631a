"""Raising the hint at the end of a pass, so that the shard may sleep (scheduler.md 5.7)."""

from __future__ import annotations

from datetime import timedelta

from ..cron import tzdata_version
from ..database import Transaction, load_queries
from ..kernel.limits import ACCEPT_SECONDS, HINT_LONGEST_SECONDS, START_SECONDS
from ..leases.fence import HINT_CLASS
from ..leases.fence import QUERIES as FENCE_QUERIES
from ..leases.hints import Hints, Sleep
from ..leases.lowering import all_shards
from .leadership import Leader

QUERIES = load_queries(__package__)


def raise_hint(leader: Leader, hints: Hints) -> bool:
    """Let the shard sleep until its next work; ``False`` when a writer came between, who lowered the hint."""
    generation = hints.generation(leader.shard)
    sleep = leader.write(lambda tx: _sleep(tx, leader.shard))
    return sleep is not None and hints.raise_to(leader.shard, generation, sleep)


def _sleep(tx: Transaction, shard: int) -> Sleep | None:
    """Compute the time with no writer in between; ``None`` when one is at work, who then leaves the hint low."""
    granted = tx.row(FENCE_QUERIES["try_lock_hint"], lock_class=HINT_CLASS, shard=shard)
    if granted is None or not granted["granted"]:
        return None
    tx.execute(FENCE_QUERIES["move_hint_sequence"], shard=shard)
    row = tx.row(
        QUERIES["next_work"],
        shard=shard,
        start_seconds=START_SECONDS,
        accept_lambda_seconds=ACCEPT_SECONDS["lambda"],
        accept_container_seconds=ACCEPT_SECONDS["container"],
    )
    longest = tx.now + timedelta(seconds=HINT_LONGEST_SECONDS)
    until = min(row["next_at"] or longest, longest) if row else longest
    return Sleep(until, tzdata_version(), len(all_shards(tx)))
