"""Whether a schedule is due, and where its cursor stands. Pure: spec + cursor + now -> a decision.

There is no grace time, expansion limit or horizon here, and no state for disabled: disabled
triggers are filtered out before (scheduler.md 5.4). ``plan`` gives a tick exactly when
``next_due_at`` is not later than ``now``, so what is selected as due never stays due.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from ..cron import is_fixed, local_slot, next_after, occurrences_between, previous_at
from ..kernel.limits import SKIPPED_COUNT_MAX
from .model import Cursor, Due, ScheduleSpec


def plan(spec: ScheduleSpec, cursor: Cursor, now: datetime) -> Due | None:
    """The tick that is due at ``now``, for the latest occurrence after the cursor; ``None`` when nothing is.

    ``InvalidSchedule`` when the spec cannot be computed: the caller alerts once and goes on (S20).
    """
    latest = previous_at(spec.cron, spec.timezone, now)
    if latest is None or latest <= cursor.scheduled_for or _dealt_with(spec, cursor, latest):
        return None
    return Due(
        scheduled_for=latest,
        local_slot=local_slot(spec.timezone, latest),
        skipped=sum(1 for _ in islice(_passed_over(spec, cursor, latest), SKIPPED_COUNT_MAX)),
        lateness_seconds=(now - latest).total_seconds(),
    )


def next_due_at(spec: ScheduleSpec, cursor: Cursor) -> datetime | None:
    """The first occurrence that a tick is still owed for; ``None`` when 50 years hold none."""
    found = next_after(spec.cron, spec.timezone, cursor.scheduled_for)
    while found is not None and _dealt_with(spec, cursor, found):
        found = next_after(spec.cron, spec.timezone, found)
    return found


def previous_due_at(spec: ScheduleSpec, occurrence: datetime) -> datetime | None:
    """The occurrence before this one: what a run's input ``previous_scheduled_for`` means."""
    return previous_at(spec.cron, spec.timezone, occurrence - timedelta(microseconds=1))


def first_cursor(spec: ScheduleSpec, now: datetime) -> Cursor:
    """The cursor of a schedule created at ``now``: what was due before is none of its business."""
    return _cursor_at(spec, now)


def edited_cursor(spec: ScheduleSpec, cursor: Cursor, now: datetime) -> Cursor:
    """The cursor after ``spec`` was saved at ``now``: unchanged by an identical save, else never before ``now``."""
    if cursor.spec_hash == spec.spec_hash:
        return cursor
    return _cursor_at(spec, max(cursor.scheduled_for, now))


def resumed_cursor(spec: ScheduleSpec, cursor: Cursor, now: datetime) -> Cursor:
    """The cursor of a trigger enabled again at ``now``: from before with ``run_latest``, else not before ``now``."""
    if spec.on_resume == "run_latest" or cursor.scheduled_for >= now:
        return cursor
    return _cursor_at(spec, now)


def _cursor_at(spec: ScheduleSpec, instant: datetime) -> Cursor:
    return Cursor(instant, local_slot(spec.timezone, instant), spec.spec_hash)


def _dealt_with(spec: ScheduleSpec, cursor: Cursor, occurrence: datetime) -> bool:
    """Whether a fixed schedule's slot lies behind the cursor although its instant lies ahead.

    That happens only when an update of the zone database moved instants (scheduler.md 5.3). Slots
    of a fixed schedule grow with its instants, and text in this form sorts as the slots do.
    """
    return (
        cursor.spec_hash == spec.spec_hash
        and is_fixed(spec.cron)
        and local_slot(spec.timezone, occurrence) <= cursor.local_slot
    )


def _passed_over(spec: ScheduleSpec, cursor: Cursor, latest: datetime) -> Iterator[datetime]:
    first = next_due_at(spec, cursor)
    if first is not None and first < latest:
        yield first
        yield from occurrences_between(spec.cron, spec.timezone, after=first, before=latest)
