"""Filling a store with published schedules, by statements and not one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from chalicelib.cron import tzdata_version
from chalicelib.kernel.canonical import canonical_json
from chalicelib.kernel.limits import JOBS_PER_SNAPSHOT
from chalicelib.projects.bundle import JobDefinition
from chalicelib.schedules.model import Cursor, ScheduleSpec
from chalicelib.schedules.plan import first_cursor, next_due_at

Connection = psycopg.Connection[dict[str, Any]]
LOCATION = "cafe"


@dataclass(frozen=True, slots=True)
class FilledJob:
    """A job with one schedule, whose cursor stands at ``since``: what comes later is owed."""

    name: str
    spec: ScheduleSpec
    relations: Sequence[str]
    since: datetime


def target_of(place: int) -> str:
    """A target holds as many jobs as a snapshot may."""
    return f"target{place // JOBS_PER_SNAPSHOT}"


def fill(connection: Connection, jobs: Sequence[FilledJob]) -> None:
    """Publish ``jobs``, a snapshot per target; statistics are fresh at the end."""
    connection.execute("INSERT INTO locations VALUES (%s, false)", [LOCATION])
    for first in range(0, len(jobs), JOBS_PER_SNAPSHOT):
        _fill_target(connection, target_of(first), jobs[first : first + JOBS_PER_SNAPSHOT])
    keep_zone_data(connection)
    analyze(connection)


def analyze(connection: Connection) -> None:
    """Fresh statistics of what was filled, and of tables that are still empty: the worst that a burst can meet."""
    connection.execute("ANALYZE")


def keep_zone_data(connection: Connection) -> None:
    """As after a pass: the schedules were computed with this zone data."""
    connection.execute("UPDATE scheduler_shards SET tzdata_version = %s", [tzdata_version()])


def _fill_target(connection: Connection, target: str, jobs: Sequence[FilledJob]) -> None:
    snapshot = target.rjust(64, "0")
    connection.execute(
        "INSERT INTO targets VALUES (%s, %s, %s, 0, false, 'lower', '{}', NULL)",
        [LOCATION, target, f"warehouse/{target}"],
    )
    connection.execute(
        "INSERT INTO snapshots VALUES (%s, %s, %s, 'command', '1', %s, NULL, false, '[]', clock_timestamp())",
        [snapshot, LOCATION, target, "b" * 64],
    )
    rows = canonical_json([_row(target, job) for job in jobs])
    for statement in _STATEMENTS:
        connection.execute(statement, {"rows": rows, "location": LOCATION, "target": target, "snapshot": snapshot})


_OF_ROWS = (
    b"FROM jsonb_to_recordset(%(rows)s::jsonb) AS r(job text, definition jsonb, trigger_id text, name text, "
    b"spec jsonb, spec_hash text, cursor jsonb, next_at timestamptz)"
)
_STATEMENTS = (
    b"INSERT INTO snapshot_jobs SELECT %(snapshot)s, r.job, r.definition " + _OF_ROWS,
    b"INSERT INTO jobs SELECT %(location)s, %(target)s, r.job, %(snapshot)s, 0 " + _OF_ROWS,
    b"INSERT INTO triggers SELECT r.trigger_id, %(location)s, %(target)s, r.name, r.job, 'schedule', r.spec, r.spec_hash "
    + _OF_ROWS,
    b"INSERT INTO trigger_state SELECT r.trigger_id, 0, true, r.cursor, r.next_at " + _OF_ROWS,
)


def _row(target: str, job: FilledJob) -> Mapping[str, Any]:
    cursor: Cursor = first_cursor(job.spec, job.since)
    spec = {name: getattr(job.spec, name) for name in ("cron", "timezone", "dst", "on_resume")}
    name = f"{job.name}/schedule"
    next_at = next_due_at(job.spec, cursor)
    return {
        "job": job.name,
        "definition": definition(job.name, job.relations, name, spec),
        "trigger_id": f"{LOCATION}/{target}/{name}",
        "name": name,
        "spec": spec,
        "spec_hash": job.spec.spec_hash,
        "cursor": cursor.to_json(),
        "next_at": next_at.isoformat() if next_at else None,
    }


def definition(job: str, relations: Sequence[str], trigger: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A job's definition as a publication stores it."""
    made = JobDefinition.model_validate(
        {
            "job": job,
            "build": {"kind": "command", "argv": ["true"]},
            "nodes": [],
            "relations": sorted(relations),
            "worker": "container",
            "timeout_seconds": 600,
            "concurrency": 1,
            "triggers": [{"name": trigger, "kind": "schedule", "spec": dict(spec)}],
        }
    )
    return made.model_dump(mode="json")
