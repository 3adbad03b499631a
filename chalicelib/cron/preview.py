"""The next occurrences of a schedule as people read them, by the functions that the scheduler uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from ..kernel.errors import InvalidRequest
from ..kernel.limits import PREVIEW_OCCURRENCES_MAX
from .occurrences import next_after
from .validation import validate
from .zones import REGION_OF_ABBREVIATION, has_change, zone

# Far from the ends of the calendar, where no zone has a meaning.
_FIRST_YEAR, _LAST_YEAR = 1900, 9000


@dataclass(frozen=True, slots=True)
class PreviewedOccurrence:
    """One occurrence: the instant in UTC and what clocks show then.

    ``local_time`` is ISO 8601 with the offset, ``abbreviation`` the zone's own word for it (``EDT``).
    ``zone_change`` marks a local date on which the clocks change. ``region_time`` is set for a
    schedule in a fixed offset such as ``EST``: the time in the region that the warning names.
    """

    scheduled_for: datetime
    local_time: str
    abbreviation: str
    timezone: str
    zone_change: bool
    region_time: str | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """The next occurrences, the warnings of validation, and how the two day fields combine if both are given."""

    cron: str
    expanded: str
    timezone: str
    occurrences: tuple[PreviewedOccurrence, ...]
    warnings: tuple[str, ...]
    day_rule: str | None


def preview(cron: str, timezone: str, after: datetime, count: int) -> Preview:
    """The first ``count`` (1 to 500) occurrences later than ``after``; fewer when 50 years hold no next one.

    Raises ``InvalidSchedule`` as ``validate`` does, and ``InvalidRequest`` for ``count`` or ``after``.
    """
    if not 1 <= count <= PREVIEW_OCCURRENCES_MAX:
        raise InvalidRequest.of_field("count", f"use 1 to {PREVIEW_OCCURRENCES_MAX}")
    if after.tzinfo is None or not _FIRST_YEAR <= after.year <= _LAST_YEAR:
        raise InvalidRequest.of_field("after", f"use an instant with a zone between {_FIRST_YEAR} and {_LAST_YEAR}")
    schedule = validate(cron, timezone, after=after)
    occurrences = tuple(occurrence_at(timezone, due) for due in islice(_following(cron, timezone, after), count))
    return Preview(cron, schedule.expanded, timezone, occurrences, schedule.warnings, day_rule(schedule.expanded))


def occurrence_at(timezone: str, due: datetime) -> PreviewedOccurrence:
    """An occurrence as people read it, in the schedule's zone."""
    local = due.astimezone(zone(timezone))
    region = REGION_OF_ABBREVIATION.get(timezone)
    return PreviewedOccurrence(
        scheduled_for=due,
        local_time=local.isoformat(timespec="seconds"),
        abbreviation=local.tzname() or "",
        timezone=timezone,
        zone_change=has_change(local.date(), zone(timezone)),
        region_time=_in_region(due, region) if region else None,
    )


def day_rule(expanded: str) -> str | None:
    """One sentence on how day of month and day of week combine; ``None`` unless both are given."""
    day_of_month, _, day_of_week = expanded.split()[2:]
    if "*" in (day_of_month, day_of_week):
        return None
    if day_of_month.startswith("*") or day_of_week.startswith("*"):
        return (
            f"Due on days that match both day of month {day_of_month} and day of week {day_of_week}, "
            "because one of the two starts with '*'."
        )
    return (
        f"Due on days that match day of month {day_of_month} or day of week {day_of_week}: "
        "one is enough, because neither starts with '*'."
    )


def _following(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    found = next_after(cron, timezone, after)
    while found is not None:
        yield found
        found = next_after(cron, timezone, found)


def _in_region(due: datetime, region: str) -> str:
    local = due.astimezone(zone(region))
    return f"{local.isoformat(timespec='seconds')} {local.tzname()} {region}"
