"""Retries: a new run, queued by the transaction that ended the one before it (scheduler.md 10.3).

The policy belongs to the job as the run's own snapshot has it, so a job that is gone from the current snapshot is still
retried. During its wait a retry is a queued row with ``not_before``: it holds nothing and is in no queue (BR-049, BR-095).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from ..authoring.policies import Retry, RetryOn
from ..database import Transaction, load_queries
from ..database.connection import json_rows
from ..kernel.ids import IdSource
from .queueing import NewRun, queue_runs
from .states import EndReason

QUERIES = load_queries(__package__, "retrying.sql")

# What is missing here is never retried: it would only happen again, or somebody has decided.
CLASS_OF_REASON: Mapping[EndReason, RetryOn] = {
    "accept_timeout": "launch_failed",
    "start_timeout": "launch_failed",
    "lost_before_start": "launch_failed",
    "queue_dead": "launch_failed",
    "lost": "lost",
    "interrupted": "lost",
    "killed": "lost",
    "tool_failed": "failed",
    "pre_execution": "failed",
    "timed_out": "failed",
}


def retry_at(policy: Retry | None, reason: EndReason, retries_before: int, now: datetime) -> datetime | None:
    """When the run that ended for ``reason`` may run again; ``None``: never.

    ``retries_before`` is the number of the run itself in its chain of retries, 0 for the first.
    """
    if policy is None or retries_before >= policy.max or CLASS_OF_REASON.get(reason) not in policy.on:
        return None
    return now + timedelta(seconds=min(policy.backoff * policy.factor**retries_before, policy.max_backoff))


def queue_retries(tx: Transaction, ids: IdSource, reasons: Mapping[str, EndReason]) -> dict[str, str]:
    """Queue the retries of the runs that have just ended for these reasons; returns retry by run.

    Every run ends once, by a guarded update under its row lock, and ``retry_of`` is unique: no run is retried twice.
    """
    wanted = [run_id for run_id, reason in reasons.items() if reason in CLASS_OF_REASON]
    rows = tx.rows(QUERIES["runs_with_policy"], run_ids=wanted) if wanted else []
    retries = [run for row in rows if (run := _retry(tx, ids, row, reasons[row["run_id"]])) is not None]
    queue_runs(tx, ids, retries)
    pairs = {str(run.retry_of): run.run_id for run in retries}
    if any(run.selection is not None for run in retries):
        tx.execute(QUERIES["carry_again"], rows=json_rows([{"old": old, "new": new} for old, new in pairs.items()]))
    return pairs


def _retry(tx: Transaction, ids: IdSource, row: Mapping[str, Any], reason: EndReason) -> NewRun | None:
    not_before = retry_at(Retry.model_validate(row["retries"]), reason, row["retry_number"], tx.now)
    if not_before is None:
        return None
    return NewRun(
        ids.mint("run"), row["location"], row["target"], row["job"], row["shard"], row["snapshot_id"],
        row["inputs_json"], "retry", trigger_id=row["trigger_id"], scheduled_for=row["scheduled_for"],
        requested_by=row["requested_by"], selection=row["selection"], retry_of=row["run_id"],
        retry_number=row["retry_number"] + 1, backfill_id=row["backfill_id"], not_before=not_before,
    )  # fmt: skip


def hand_over_covered(tx: Transaction, retries: Mapping[str, str]) -> None:
    """Ticks that a run covered which never started are covered by its retry from now on (scheduler.md 5.4)."""
    if retries:
        rows = json_rows([{"old": old, "new": new} for old, new in retries.items()])
        tx.execute(QUERIES["hand_over_covered"], rows=rows)
