"""When a schedule is due, by looking at every minute of a stretch of time: slow, plain, and not the product's way.

The clocks of a zone are read at each UTC minute. A frequent schedule is due whenever they match. A fixed one is due when
they reach or have passed a matching wall time for the first time: after a gap at once, in a repeated hour not again.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

_MINUTE = timedelta(minutes=1)
_DAYS_BEFORE = 1
_DAYS_AFTER = 5


@lru_cache(maxsize=4_096)
def occurrences_around(cron: str, zone: str, day: date) -> tuple[datetime, ...]:
    """All occurrences from a day before to five days after the start of ``day`` (UTC)."""
    minutes = _minutes(zone, day)
    matches = _matcher(cron)
    if cron.startswith("*") or cron.split()[1].startswith("*"):
        return tuple(instant for instant, wall in minutes if matches(wall))
    found = []
    reached = minutes[0][1]
    for instant, wall in minutes[1:]:
        passed = []
        while reached < wall:
            reached += _MINUTE
            passed.append(reached)
        if any(map(matches, passed)):
            found.append(instant)
    return tuple(found)


@lru_cache(maxsize=256)
def _minutes(zone: str, day: date) -> list[tuple[datetime, datetime]]:
    place = ZoneInfo(zone)
    first = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=_DAYS_BEFORE)
    count = (_DAYS_BEFORE + _DAYS_AFTER) * 24 * 60
    instants = [first + number * _MINUTE for number in range(count)]
    return [(instant, instant.astimezone(place).replace(tzinfo=None)) for instant in instants]


class _matcher:  # noqa: N801 - called like a function
    """Whether a wall time matches a cron text of numbers, lists, ranges and steps."""

    def __init__(self, cron: str) -> None:
        minute, hour, day, month, weekday = cron.split()
        if (day, month) != ("*", "*"):
            raise ValueError(f"{cron}: days and months are not looked at here")
        self._minutes, self._hours = _numbers(minute, 60), _numbers(hour, 24)
        self._weekdays = {number % 7 for number in _numbers(weekday, 8)}

    def __call__(self, wall: datetime) -> bool:
        return wall.minute in self._minutes and wall.hour in self._hours and wall.isoweekday() % 7 in self._weekdays


def _numbers(field: str, end: int) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        first = 0 if span == "*" else int(low)
        last = end - 1 if span == "*" else int(high or low)
        found.update(range(first, last + 1, int(step or 1)))
    return frozenset(found)
