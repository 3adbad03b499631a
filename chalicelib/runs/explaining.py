"""Reads what a run waits for, stored and derived, or how far it has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..database import Transaction, load_queries
from ..kernel.limits import POOL_HOLDERS_NAMED, RUNS_NAMED
from .model import Blocker, Progress, RunView, WhyView
from .reading import one_run
from .states import ACTIVE
from .why import Named, backoff_blocker, concurrency_blocker, explain, names_of, progress, stored_blocker

QUERIES = load_queries(__package__, "why.sql")


def why(tx: Transaction, run_id: str) -> WhyView:
    """Everything that holds a waiting run back, or the ages of an active one."""
    run = one_run(tx, run_id)
    blockers = _blockers(tx, run) if run.state == "queued" else []
    return explain(run, blockers, _progress(tx, run), tx.now)


def _blockers(tx: Transaction, run: RunView) -> list[Blocker]:
    """What is derived comes first: a run that is delayed or behind its job's limit is decided by nothing else."""
    derived = backoff_blocker(run, tx.now)
    limit = tx.row(QUERIES["limit_of_job"], run_id=run.run_id, named=RUNS_NAMED) if derived is None else None
    if limit is not None:
        derived = concurrency_blocker(run, limit)
    if derived is not None:
        return [derived]
    rows = tx.rows(QUERIES["blockers_of_run"], run_id=run.run_id)
    named = _named(tx, rows)
    return [stored_blocker(row, named) for row in rows]


def _named(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> Named:
    run_ids, pools = names_of(rows)
    found = tx.rows(QUERIES["runs_named"], run_ids=run_ids)
    use = tx.rows(QUERIES["pools_named"], pools=pools, named=POOL_HOLDERS_NAMED)
    return Named({row["run_id"]: row for row in found}, {row["pool"]: row for row in use}, tx.now)


def _progress(tx: Transaction, run: RunView) -> Progress | None:
    if run.state not in ACTIVE or run.claim is None:
        return None
    kind = run.claim.worker_kind
    row = tx.row(QUERIES["busy_boots"], worker_kind=kind) if kind == "container" else None
    return progress(run, run.claim, row["boots"] if row else None, tx.now)
