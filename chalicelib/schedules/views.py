"""Triggers and ticks as lists and pages show them."""

from __future__ import annotations

from typing import Any, Literal

from ..kernel.records import Instant, Record


class TriggerView(Record):
    """A trigger with its next occurrence (``None`` for a sensor, or when it is disabled)."""

    name: str
    job: str
    kind: Literal["schedule", "source", "run", "platform", "user"]
    spec: dict[str, Any]
    enabled: bool
    next_at: Instant | None
    evaluated: bool


class TickView(Record):
    """The record of one occurrence that an evaluation acted on; ``skipped`` of 1,000 means 1,000 or more."""

    scheduled_for: Instant
    local_slot: str
    outcome: Literal["requested", "covered"]
    run_id: str | None
    covered_by: str | None
    recorded_at: Instant
    lateness_seconds: float
    skipped: int


class OccurrenceView(Record):
    """One previewed occurrence: UTC, local time with its offset, and a mark on clock-change days."""

    scheduled_for: Instant
    local_time: str
    abbreviation: str
    zone_change: bool
    region_time: str | None


class PreviewView(Record):
    """The next occurrences of an expression, from the functions that the scheduler uses."""

    cron: str
    timezone: str
    occurrences: list[OccurrenceView]
    warnings: list[str]
    day_rule: str | None
