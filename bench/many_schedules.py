"""A store with very many schedules of which few are due, filled by a handful of statements."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from chalicelib.kernel.canonical import canonical_json
from chalicelib.schedules.model import ScheduleSpec
from chalicelib.schedules.plan import first_cursor

from .filling import LOCATION, Connection, definition, keep_zone_data

# A target's share is what one snapshot may hold, so that a store of a million is one that can be.
TRIGGERS_PER_TARGET = 2_000
TRIGGERS_PER_JOB = 10
EVERY_MINUTE = ScheduleSpec("* * * * *", "UTC")
ONCE_A_YEAR = ScheduleSpec("0 0 1 1 *", "UTC")

_STATEMENTS = (
    """
INSERT INTO targets SELECT %(location)s, 'target' || n, 'warehouse/' || n, 0, false, 'lower', '{}', NULL
FROM generate_series(0, %(targets)s - 1) AS n""",
    """
INSERT INTO snapshots SELECT lpad(n::text, 64, '0'), %(location)s, 'target' || n, 'command', '1', repeat('b', 64), NULL, false, '[]', %(since)s
FROM generate_series(0, %(targets)s - 1) AS n""",
    """
INSERT INTO snapshot_jobs
SELECT lpad((n / %(jobs_per_target)s)::text, 64, '0'), 'job' || n,
       %(definition)s::jsonb || jsonb_build_object('job', 'job' || n, 'relations', jsonb_build_array('relation' || n))
FROM generate_series(0, %(jobs)s - 1) AS n""",
    """
INSERT INTO jobs SELECT %(location)s, 'target' || n / %(jobs_per_target)s, 'job' || n, lpad((n / %(jobs_per_target)s)::text, 64, '0'), 0
FROM generate_series(0, %(jobs)s - 1) AS n""",
    """
INSERT INTO triggers
SELECT 'trigger' || n, %(location)s, 'target' || n / %(triggers_per_target)s, 'schedule' || n, 'job' || n / %(triggers_per_job)s, 'schedule',
       CASE WHEN n %% %(every)s = 0 THEN %(due_spec)s::jsonb ELSE %(other_spec)s::jsonb END,
       CASE WHEN n %% %(every)s = 0 THEN %(due_hash)s ELSE %(other_hash)s END
FROM generate_series(0, %(count)s - 1) AS n""",
    # The others are due one after the other, from an hour to a year ahead.
    """
INSERT INTO trigger_state
SELECT 'trigger' || n, 0, true, CASE WHEN n %% %(every)s = 0 THEN %(due_cursor)s::jsonb ELSE %(other_cursor)s::jsonb END,
       CASE WHEN n %% %(every)s = 0 THEN %(since)s + interval '1 minute'
            ELSE %(since)s + interval '1 hour' + (n::double precision / %(count)s) * interval '365 days' END
FROM generate_series(0, %(count)s - 1) AS n""",
)


def fill_many(connection: Connection, *, count: int, due: int, since: datetime) -> None:
    """``count`` enabled schedules; ``due`` of them, each of another job, for every minute after ``since``.

    Statistics and the visibility map are fresh at the end, so that no vacuum runs beside what is measured.
    """
    every = count // due
    if every % TRIGGERS_PER_JOB:
        raise ValueError(f"{due} due schedules of {count} would share jobs")
    connection.execute("SET synchronous_commit = off")
    connection.execute("INSERT INTO locations VALUES (%s, false)", [LOCATION])
    for statement in _STATEMENTS:
        connection.execute(statement.encode(), _parameters(count, every, since))
    keep_zone_data(connection)
    connection.execute("VACUUM ANALYZE")
    connection.execute("CHECKPOINT")


def _parameters(count: int, every: int, since: datetime) -> Mapping[str, Any]:
    written = {"due": EVERY_MINUTE, "other": ONCE_A_YEAR}
    specs = {f"{name}_spec": canonical_json(_document(spec)) for name, spec in written.items()}
    hashes = {f"{name}_hash": spec.spec_hash for name, spec in written.items()}
    cursors = {f"{name}_cursor": canonical_json(first_cursor(spec, since).to_json()) for name, spec in written.items()}
    bare = definition("any", [], "any", _document(ONCE_A_YEAR)) | {"triggers": []}
    return {
        "location": LOCATION,
        "count": count,
        "every": every,
        "since": since,
        "targets": -(-count // TRIGGERS_PER_TARGET),
        "jobs": count // TRIGGERS_PER_JOB,
        "jobs_per_target": TRIGGERS_PER_TARGET // TRIGGERS_PER_JOB,
        "triggers_per_target": TRIGGERS_PER_TARGET,
        "triggers_per_job": TRIGGERS_PER_JOB,
        "definition": canonical_json(bare),
        **specs,
        **hashes,
        **cursors,
    }


def _document(spec: ScheduleSpec) -> dict[str, str]:
    return {"cron": spec.cron, "timezone": spec.timezone, "dst": spec.dst, "on_resume": spec.on_resume}
