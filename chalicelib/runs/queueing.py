"""Putting runs into the queue, by people and by schedules: one statement for any number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from ..database import Transaction, load_queries
from ..database.connection import json_rows
from ..kernel.clock import instant_text
from ..kernel.errors import IdReused, NotFound
from ..kernel.ids import IdSource
from ..projects.bundle import JobDefinition
from ..projects.inputs import resolve_inputs
from .model import Origin, RunRequest
from .selecting import narrowed

QUERIES = load_queries(__package__)


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be queued: pinned to its snapshot and inputs from here on (S27)."""

    run_id: str
    location: str
    target: str
    job: str
    shard: int
    snapshot_id: str
    inputs: Mapping[str, Any]
    origin: Origin
    trigger_id: str | None = None
    scheduled_for: datetime | None = None
    requested_by: str | None = None
    request: Mapping[str, Any] | None = None
    selection: Sequence[str] | None = None
    rerun_of: str | None = None
    retry_of: str | None = None
    retry_number: int = 0
    backfill_id: str | None = None
    not_before: datetime | None = None

    def row(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self) | {name: _text_of(getattr(self, name)) for name in ("scheduled_for", "not_before")}


@dataclass(frozen=True, slots=True)
class NewEvent:
    """A lifecycle fact to be appended."""

    run_id: str
    kind: str
    payload: Mapping[str, Any]


def append_events(tx: Transaction, ids: IdSource, events: Iterable[NewEvent]) -> None:
    """Append events in their order."""
    rows = [{"event_id": ids.mint("evt"), **asdict(event)} for event in events]
    if rows:
        tx.execute(QUERIES["insert_events"], rows=json_rows(rows))


def queue_runs(tx: Transaction, ids: IdSource, runs: Sequence[NewRun]) -> set[str]:
    """Insert the runs whose id is free, with their events; returns the ids that were inserted."""
    if not runs:
        return set()
    inserted = {row["run_id"] for row in tx.rows(QUERIES["insert_runs"], rows=json_rows([run.row() for run in runs]))}
    append_events(
        tx,
        ids,
        (NewEvent(run.run_id, "queued", _told(run)) for run in runs if run.run_id in inserted),
    )
    return inserted


def _told(run: NewRun) -> dict[str, Any]:
    """What the event says: who or what asked, and of which run this one is the successor."""
    lineage = {
        "rerun_of": run.rerun_of,
        "retry_of": run.retry_of,
        "retry_number": run.retry_number or None,
        "backfill": run.backfill_id,
        "not_before": _text_of(run.not_before),
    }
    asked = {"origin": run.origin, "trigger": run.trigger_id, "requested_by": run.requested_by}
    return asked | {name: value for name, value in lineage.items() if value is not None}


def _text_of(instant: datetime | None) -> str | None:
    return None if instant is None else instant_text(instant)


def request_run(
    tx: Transaction, ids: IdSource, job_key: tuple[str, str, str], request: RunRequest, requested_by: str
) -> bool:
    """Queue one run for a person; ``False`` when this very request did so before (S47)."""
    location, target, job = job_key
    asked = {"location": location, "target": target, "job": job, "inputs": request.inputs}
    if asked_before(tx, request.run_id, requested_by, asked):
        return False
    found = tx.row(QUERIES["current_job"], location=location, target=target, job=job)
    if found is None:
        raise NotFound(
            f"no job {job!r} is published for {location}/{target}; `tidemill jobs list` shows those that are"
        )
    definition = JobDefinition.model_validate(found["definition"])
    inputs = resolve_inputs(definition, request.inputs)
    run = NewRun(
        request.run_id, location, target, job, found["shard"], found["snapshot_id"], inputs, "manual",
        requested_by=requested_by, request=asked, selection=narrowed(tx, found["snapshot_id"], definition, inputs),
    )  # fmt: skip
    return queue_requested(tx, ids, run)


def queue_requested(tx: Transaction, ids: IdSource, run: NewRun) -> bool:
    """Queue a run that a person asked for; ``False`` when the same request was the faster one on another connection."""
    if run.run_id in queue_runs(tx, ids, [run]):
        return True
    asked_before(tx, run.run_id, str(run.requested_by), run.request or {})
    return False


def asked_before(tx: Transaction, run_id: str, requested_by: str, asked: Mapping[str, Any]) -> bool:
    """Whether this person asked for this very run before (S47). Raises ``IdReused`` when the id stands for another."""
    earlier = tx.row(QUERIES["request_of_run"], run_id=run_id)
    if earlier is None:
        return False
    if earlier["requested_by"] == requested_by and earlier["request_json"] == asked:
        return True
    raise IdReused.of_field("run_id", "this run id belongs to another request; make a new id")
