"""One batch of due schedules: lock, plan, tick, queue, move the cursors, in one transaction (scheduler.md 5.4)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ..database import Transaction, load_queries
from ..database.connection import json_rows
from ..kernel.canonical import canonical_json
from ..kernel.clock import instant_text
from ..kernel.errors import TidemillError
from ..kernel.ids import IdSource
from ..kernel.limits import TRIGGERS_PER_BATCH
from ..projects.bundle import JobDefinition
from ..runs.queueing import NewRun, queue_runs
from ..runs.selecting import narrowed
from .inputs import occurrence_inputs
from .model import Cursor, Due, ScheduleSpec
from .plan import next_due_at, plan

QUERIES = load_queries(__package__)
LOG = logging.getLogger("tidemill.schedules")

Keyset = tuple[datetime, str]
SameRun = tuple[str, ...]
# A schedule that cannot be computed is looked at again after this long, so that it does not fill every batch.
UNCOMPUTABLE_RETRY_SECONDS = 60
_PROBLEM_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What one batch did; ``last`` is where the next one goes on, ``None`` when this one was not full.

    ``uncomputable`` says of each schedule that was put off where it is and what is wrong with it.
    """

    ticked: int
    requested: int
    last: Keyset | None
    uncomputable: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A due schedule with the run that it would queue."""

    row: Mapping[str, Any]
    spec: ScheduleSpec
    due: Due
    inputs: Mapping[str, Any]
    selection: Sequence[str] | None = None

    @property
    def trigger_id(self) -> str:
        """The trigger's id."""
        return str(self.row["trigger_id"])

    @property
    def same_run(self) -> SameRun:
        """Two ticks with equal keys want the same run."""
        row = self.row
        return (row["location"], row["target"], row["job"], row["snapshot_id"], canonical_json(dict(self.inputs)))


def evaluate_batch(tx: Transaction, ids: IdSource, shard: int, pass_now: datetime, after: Keyset) -> Evaluated:
    """Tick up to 200 due schedules of a shard behind the keyset ``after``, however late they are."""
    rows = tx.rows(
        QUERIES["due_schedules"],
        shard=shard,
        pass_now=pass_now,
        batch=TRIGGERS_PER_BATCH,
        after_at=after[0],
        after_trigger=after[1],
    )
    if not rows:
        return Evaluated(0, 0, None)
    planned: list[_Planned] = []
    moves: list[dict[str, Any]] = []
    uncomputable: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        problem = _plan_one(tx, row, planned, moves)
        if problem is not None:
            place = {name: row[name] for name in ("location", "target", "job")}
            uncomputable[row["trigger_id"]] = {**place, "problem": problem}
    requested = _tick(tx, ids, planned, pass_now)
    tx.execute(QUERIES["move_cursors"], rows=json_rows(moves))
    full = len(rows) == TRIGGERS_PER_BATCH
    last = (rows[-1]["next_at"], rows[-1]["trigger_id"]) if full else None
    return Evaluated(len(planned), requested, last, uncomputable)


def recompute_page(tx: Transaction, *, shard: int, after: str) -> str | None:
    """Recompute when up to 200 schedules are due, from their cursors; where the next page goes on, ``None`` at the end."""
    rows = tx.rows(QUERIES["schedules_page"], shard=shard, after=after, batch=TRIGGERS_PER_BATCH)
    if rows:
        tx.execute(QUERIES["move_cursors"], rows=json_rows([_recomputed(row, tx.now) for row in rows]))
    return rows[-1]["trigger_id"] if len(rows) == TRIGGERS_PER_BATCH else None


def _recomputed(row: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """A state row at its unchanged cursor; one that cannot be computed is looked at by the next evaluation."""
    try:
        next_at = next_due_at(ScheduleSpec(**row["spec"]), Cursor.from_json(row["cursor_json"]))
    except (TidemillError, ValueError, TypeError, ArithmeticError):
        LOG.exception("schedule %s cannot be computed", row["trigger_id"])
        next_at = now
    cursor = row["cursor_json"]
    return {"trigger_id": row["trigger_id"], "cursor": cursor, "next_at": instant_text(next_at) if next_at else None}


def _plan_one(
    tx: Transaction, row: Mapping[str, Any], planned: list[_Planned], moves: list[dict[str, Any]]
) -> str | None:
    """Plan one schedule; one that cannot be computed is put off and does not stop the others (S20): what is wrong."""
    problem = None
    cursor = Cursor.from_json(row["cursor_json"])
    try:
        spec = ScheduleSpec(**row["spec"])
        due = plan(spec, cursor, tx.now)
        if due is not None:
            planned.append(_planned(tx, row, spec, due))
            cursor = due.cursor(spec)
        next_at = next_due_at(spec, cursor)
    except (TidemillError, ValueError, TypeError, ArithmeticError) as error:
        LOG.exception("schedule %s cannot be computed", row["trigger_id"])
        problem = f"{type(error).__name__}: {error}"[:_PROBLEM_CHARACTERS]
        next_at = tx.now + timedelta(seconds=UNCOMPUTABLE_RETRY_SECONDS)
    moves.append(
        {
            "trigger_id": row["trigger_id"],
            "cursor": cursor.to_json(),
            "next_at": instant_text(next_at) if next_at is not None else None,
        }
    )
    return problem


def _planned(tx: Transaction, row: Mapping[str, Any], spec: ScheduleSpec, due: Due) -> _Planned:
    if row["definition"] is None:  # the job declares no inputs: the common case costs no parsing
        return _Planned(row, spec, due, {})
    definition = JobDefinition.model_validate(row["definition"])
    inputs = occurrence_inputs(definition, spec, due.scheduled_for)
    return _Planned(row, spec, due, inputs, narrowed(tx, row["snapshot_id"], definition, inputs))


def _tick(tx: Transaction, ids: IdSource, planned: Sequence[_Planned], pass_now: datetime) -> int:
    """Write the ticks and queue their runs; returns how many runs.

    Of several ticks that want the same run the first asks for it and covers the others. A tick that exists already
    only moves its cursor, so the next in line asks instead: that is what the loop is for, and it hardly ever repeats.
    """
    by_queue = _covering(tx, planned, pass_now)
    covered = [(item, by_queue[item.trigger_id]) for item in planned if item.trigger_id in by_queue]
    pending = [item for item in planned if item.trigger_id not in by_queue]
    requested = 0
    while pending:
        runs = _request_first(tx, ids, pending)
        requested += len(runs)
        leaders = {item.same_run: item.trigger_id for item in reversed(pending)}
        followers = [item for item in pending if leaders[item.same_run] != item.trigger_id]
        covered += [(item, runs[item.same_run]) for item in followers if item.same_run in runs]
        pending = [item for item in followers if item.same_run not in runs]
    _insert_ticks(tx, [_tick_row(item, None, run_id) for item, run_id in covered])
    return requested


def _request_first(tx: Transaction, ids: IdSource, pending: Sequence[_Planned]) -> dict[SameRun, str]:
    leaders = {item.same_run: item for item in reversed(pending)}
    run_ids = {key: ids.mint("run") for key in leaders}
    inserted = _insert_ticks(tx, [_tick_row(item, run_ids[key], None) for key, item in leaders.items()])
    fresh = {key: run_ids[key] for key, item in leaders.items() if item.trigger_id in inserted}
    queue_runs(tx, ids, [_run(leaders[key], run_id) for key, run_id in fresh.items()])
    return fresh


def _insert_ticks(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> set[str]:
    return {row["trigger_id"] for row in tx.rows(QUERIES["insert_ticks"], rows=json_rows(rows))} if rows else set()


def _covering(tx: Transaction, planned: Sequence[_Planned], pass_now: datetime) -> dict[str, str]:
    names = ("trigger_id", "location", "target", "job", "snapshot_id")
    wanted = [
        {name: item.row[name] for name in names} | {"inputs": dict(item.inputs), "selection": item.selection}
        for item in planned
    ]
    found = tx.rows(QUERIES["covering_runs"], rows=json_rows(wanted), pass_now=pass_now)
    return {row["trigger_id"]: row["run_id"] for row in found}


def _run(item: _Planned, run_id: str) -> NewRun:
    row = item.row
    return NewRun(
        run_id, row["location"], row["target"], row["job"], row["shard"], row["snapshot_id"], item.inputs, "schedule",
        trigger_id=row["trigger_id"], scheduled_for=item.due.scheduled_for, selection=item.selection,
    )  # fmt: skip


def _tick_row(item: _Planned, run_id: str | None, covered_by: str | None) -> dict[str, Any]:
    return {
        "trigger_id": item.row["trigger_id"],
        "local_slot": item.due.local_slot,
        "scheduled_for": instant_text(item.due.scheduled_for),
        "outcome": "covered" if covered_by else "requested",
        "run_id": run_id,
        "covered_by": covered_by,
        "lateness_seconds": item.due.lateness_seconds,
        "skipped": item.due.skipped,
    }
