"""How long after its due time a run is queued and claimed, on the whole local stack over several minutes.

The look-ahead makes the delayed messages, moto delivers them, the event pump starts the handlers: nothing is called by
hand. Each due time belongs to a schedule and job of its own.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from chalicelib.local.pump import next_minute
from chalicelib.local.stack import LocalStack, StackOptions
from chalicelib.schedules.model import ScheduleSpec

from .document import Document, Figure, rounded, say
from .filling import Connection, FilledJob, fill
from .percentiles import percentile
from .store import WORK

MINUTES = 4
PER_MINUTE = 75
SLOTS = 1_000
# After the last due minute: the minute tick would repair anything by then, and its lateness would show.
PATIENCE_SECONDS = 130
LOOK_SECONDS = 5


def measure() -> Document:
    """Start a stack, publish, let the minutes pass, and read what the store says."""
    WORK.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stack-", dir=WORK, ignore_cleanup_errors=True) as folder:
        stack = LocalStack(StackOptions(Path(folder), slots=SLOTS, worker=False), say, environment={})
        try:
            url = stack.start().database_url
            with psycopg.connect(_superuser(url), autocommit=True, row_factory=dict_row) as connection:
                return _measure(stack, connection)
        finally:
            stack.stop()


def _superuser(application_url: str) -> str:
    return psycopg.conninfo.make_conninfo(application_url, user="postgres")


def _measure(stack: LocalStack, connection: Connection) -> Document:
    first = next_minute(datetime.now(UTC) + timedelta(seconds=20))
    fill(connection, list(_jobs(first)))
    # What a publication does at its end.
    stack.services.hints.lower(0)
    stack.services.scheduler.send(0, "wake")
    last = first + timedelta(minutes=MINUTES - 1)
    say(f"{PER_MINUTE} schedules a minute, {first:%H:%M} to {last:%H:%M} UTC")
    rows = _wait(connection, last + timedelta(seconds=PATIENCE_SECONDS))
    return Document("latency", _figures(rows))


def _jobs(first: datetime) -> Iterator[FilledJob]:
    for place in range(MINUTES * PER_MINUTE):
        due = first + timedelta(minutes=place // PER_MINUTE)
        spec = ScheduleSpec(f"{due.minute} {due.hour} * * *", "UTC")
        yield FilledJob(f"job{place:06}", spec, [f"relation{place:06}"], due - timedelta(minutes=1))


def _wait(connection: Connection, until: datetime) -> Sequence[Mapping[str, Any]]:
    """The rows of all due times once they are claimed. ``RuntimeError`` when some are not by ``until``."""
    while True:
        rows = connection.execute(_MEASURED).fetchall()
        claimed = sum(row["claimed"] is not None for row in rows)
        say(f"{claimed} of {MINUTES * PER_MINUTE} claimed")
        if claimed == MINUTES * PER_MINUTE:
            return rows
        if datetime.now(UTC) > until:
            raise RuntimeError("not every due time was claimed in time")
        time.sleep(LOOK_SECONDS)


def _figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {"due_times": len(rows), "minutes": MINUTES}
    for name in ("queued", "claimed"):
        seconds = [float(row[name]) for row in rows]
        figures |= {
            f"due_to_{name}_p{percent}_seconds": rounded(percentile(seconds, percent)) for percent in (50, 99, 100)
        }
    return figures


_MEASURED = b"""
SELECT extract(epoch FROM k.recorded_at - k.scheduled_for) AS queued, extract(epoch FROM r.claimed_at - k.scheduled_for) AS claimed
FROM ticks k JOIN runs r ON r.run_id = k.run_id
"""
