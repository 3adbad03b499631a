"""Putting runs into the queue, by people and by schedules: one statement for any number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..database import Transaction, load_queries
from ..database.connection import json_rows
from ..kernel.errors import IdReused, NotFound
from ..kernel.ids import IdSource
from ..projects.bundle import JobDefinition
from ..projects.inputs import resolve_inputs
from .model import RunRequest

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
    origin: str
    trigger_id: str | None = None
    requested_by: str | None = None
    request: Mapping[str, Any] | None = None


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
    inserted = {row["run_id"] for row in tx.rows(QUERIES["insert_runs"], rows=json_rows([asdict(run) for run in runs]))}
    append_events(
        tx,
        ids,
        (
            NewEvent(
                run.run_id,
                "queued",
                {"origin": run.origin, "trigger": run.trigger_id, "requested_by": run.requested_by},
            )
            for run in runs
            if run.run_id in inserted
        ),
    )
    return inserted


def request_run(
    tx: Transaction, ids: IdSource, job_key: tuple[str, str, str], request: RunRequest, requested_by: str
) -> bool:
    """Queue one run for a person; ``False`` when this very request did so before (S47)."""
    location, target, job = job_key
    asked = {"location": location, "target": target, "job": job, "inputs": request.inputs}
    if _asked_before(tx, request.run_id, requested_by, asked):
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
        requested_by=requested_by, request=asked,
    )  # fmt: skip
    if request.run_id in queue_runs(tx, ids, [run]):
        return True
    # another transaction queued the same id between the look and the insert
    _asked_before(tx, request.run_id, requested_by, asked)
    return False


def _asked_before(tx: Transaction, run_id: str, requested_by: str, asked: Mapping[str, Any]) -> bool:
    earlier = tx.row(QUERIES["request_of_run"], run_id=run_id)
    if earlier is None:
        return False
    if earlier["requested_by"] == requested_by and earlier["request_json"] == asked:
        return True
    raise IdReused.of_field("run_id", "this run id belongs to another request; make a new id")
