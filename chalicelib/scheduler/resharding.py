"""Changing the number of scheduler shards, while everything else goes on (scheduler.md 18)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..catalog.plan import shard_of
from ..database import Database, Transaction, load_queries
from ..database.connection import json_rows
from ..kernel.errors import InvalidRequest
from ..kernel.limits import SCHEDULER_SHARDS_MAX
from ..leases.fence import FENCE_CLASS, HINT_CLASS
from ..leases.hints import Hints
from ..leases.lowering import all_shards

QUERIES = load_queries(__package__)


def reshard(database: Database, hints: Hints, count: int) -> list[int]:
    """Spread jobs, their triggers and their unfinished runs over ``count`` shards; the shards that there are now.

    All locks are taken in order, so that no pass and no writer is in the middle; every epoch rises, which fences the
    passes that hold a lease. The new hints are lowered before the commit: a visit to a shard that is not there yet finds
    nothing, a shard without a hint would never be visited.
    """
    if not 1 <= count <= SCHEDULER_SHARDS_MAX:
        raise InvalidRequest.of_field("count", f"use 1 to {SCHEDULER_SHARDS_MAX} shards")
    hints.announce(count)
    before = database.write(lambda tx: _spread(tx, count))
    hints.announce(count)
    for shard in before[count:]:
        hints.forget(shard)
    return list(range(count))


def _spread(tx: Transaction, count: int) -> list[int]:
    before = all_shards(tx)
    tx.row(QUERIES["lift_statement_limit"])
    for lock_class in (FENCE_CLASS, HINT_CLASS):
        tx.rows(QUERIES["lock_shards"], lock_class=lock_class, highest=max(len(before), count) - 1)
    tx.execute(QUERIES["add_shards"], count=count)
    tx.execute(QUERIES["move_epochs"])
    rows = json_rows([_placed(row, count) for row in tx.rows(QUERIES["jobs_with_work"])])
    for query in ("move_jobs", "move_triggers", "move_runs", "move_open_backfills"):
        tx.execute(QUERIES[query], rows=rows)
    tx.execute(QUERIES["remove_due_messages"])
    tx.execute(QUERIES["remove_shards"], count=count)
    return before


def _placed(row: Mapping[str, Any], count: int) -> dict[str, Any]:
    return {**row, "shard": shard_of(row["location"], row["target"], row["job"], count)}
