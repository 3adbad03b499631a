"""The slow and obvious answer: look at the clock of the zone minute by minute.

A fixed schedule is due at the first minute at which the clocks show a matching wall time or have
passed it; a frequent one at every minute at which they show one. Which wall times match is asked of
the library in its zoneless form, so nothing of ours decides here but reading a zone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache

from cronsim import CronSim

from chalicelib.cron import next_after, previous_at
from chalicelib.cron.zones import zone, zone_names

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
SCAN_STEP = timedelta(days=10)


@dataclass(frozen=True)
class Change:
    """One change of a zone's clocks: its first instant, and the offsets before and from then on."""

    timezone: str
    instant: datetime
    before: timedelta
    after: timedelta

    @property
    def wall_before(self) -> datetime:
        return (self.instant + self.before).replace(tzinfo=None)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@cache
def changes_of(timezone: str, first_year: int = 1985, last_year: int = 2037) -> tuple[Change, ...]:
    place, found = zone(timezone), []
    low = datetime(first_year, 1, 1, tzinfo=UTC)
    while low.year <= last_year:
        high = low + SCAN_STEP
        before, after = _offset(low, timezone), _offset(high, timezone)
        if before != after:
            left, right = low, high
            while right - left > SECOND:
                middle = left + (right - left) // SECOND // 2 * SECOND
                if middle.astimezone(place).utcoffset() == before:
                    left = middle
                else:
                    right = middle
            found.append(Change(timezone, right, before, after))
        low = high
    return tuple(found)


@lru_cache(maxsize=1)
def kinds_of_change() -> tuple[Change, ...]:
    """One change of each kind that any zone knows: the same offsets at the same time of day, the latest one."""
    kinds: dict[tuple[object, ...], Change] = {}
    for name in sorted(zone_names()):
        for change in changes_of(name):
            key = (change.before, change.after, change.wall_before.time())
            if key not in kinds or kinds[key].instant < change.instant:
                kinds[key] = change
    return tuple(kinds.values())


def expected(cron: str, timezone: str, begin: datetime, end: datetime) -> list[datetime]:
    """Every occurrence in [begin, end); both are whole minutes on days without a change."""
    place = zone(timezone)
    minutes = [begin + MINUTE * index for index in range(int((end - begin) / MINUTE))]
    shown = [minute.astimezone(place).replace(tzinfo=None) for minute in minutes]
    walls = _matching(cron, min(shown), max(shown))
    if any(field.startswith("*") for field in cron.split()[:2]):
        matching = set(walls)
        return [minute for minute, wall in zip(minutes, shown, strict=True) if wall in matching]
    return _first_reached(minutes, shown, walls)


def check_series(cron: str, timezone: str, begin: datetime, end: datetime, probes: Iterable[datetime]) -> None:
    """Both directions give the expected series, from its ends and from every probed instant."""
    series = expected(cron, timezone, begin, end)
    label = (cron, timezone, begin)
    assert _forward(cron, timezone, begin, end) == series, label
    assert _backward(cron, timezone, begin, end) == series, label
    for probe in probes:
        place = bisect_right(series, probe)
        following, preceding = next_after(cron, timezone, probe), previous_at(cron, timezone, probe)
        assert preceding is None or preceding <= probe, label
        assert following is None or following > probe, label
        if place > 0:
            assert preceding == series[place - 1], (label, probe)
            assert next_after(cron, timezone, series[place - 1]) == following, (label, probe)
        if place < len(series):
            assert following == series[place], (label, probe)


def _offset(instant: datetime, timezone: str) -> timedelta:
    offset = instant.astimezone(zone(timezone)).utcoffset()
    assert offset is not None
    return offset


def _matching(cron: str, first: datetime, last: datetime) -> list[datetime]:
    walls = []
    for wall in CronSim(cron, first - SECOND):
        if wall > last:
            break
        walls.append(wall)
    return walls


def _first_reached(minutes: Sequence[datetime], shown: Sequence[datetime], walls: Sequence[datetime]) -> list[datetime]:
    due, done = [], 0
    for minute, wall in zip(minutes, shown, strict=True):
        reached = bisect_right(walls, wall)
        if reached > done:
            due.append(minute)
            done = reached
    return due


def _forward(cron: str, timezone: str, begin: datetime, end: datetime) -> list[datetime]:
    found, due = [], next_after(cron, timezone, begin - SECOND)
    while due is not None and due < end:
        found.append(due)
        due = next_after(cron, timezone, due)
    return found


def _backward(cron: str, timezone: str, begin: datetime, end: datetime) -> list[datetime]:
    found, due = [], previous_at(cron, timezone, end - SECOND)
    while due is not None and due >= begin:
        found.append(due)
        due = previous_at(cron, timezone, due - SECOND)
    return found[::-1]
