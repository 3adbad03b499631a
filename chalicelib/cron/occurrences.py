"""The strictly increasing series of instants at which a schedule is due (scheduler.md 5.1).

A *fixed* schedule is due at the first instant at which the zone's clocks show a matching wall time
or have passed it: after a spring gap, and at the first pass of a repeated time. A *frequent* one is
due whenever the clocks show a matching wall time: never inside a gap, twice in a repeated hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from ..kernel.limits import NEVER_FIRES_YEARS
from .expression import Expression, parse
from .zones import change_near, has_change, instant_of, offsets, shown, zone

_JUST_BEFORE = timedelta(microseconds=1)


def next_after(cron: str, timezone: str, instant: datetime) -> datetime | None:
    """The first occurrence later than ``instant``, in UTC; ``None`` when 50 years hold none."""
    return first_after(parse(cron), zone(timezone), instant, instant.year + NEVER_FIRES_YEARS)


def previous_at(cron: str, timezone: str, instant: datetime) -> datetime | None:
    """The last occurrence not later than ``instant``, in UTC; ``None`` when 50 years hold none."""
    expression, place = parse(cron), zone(timezone)
    step = _previous_fixed if expression.fixed else _previous_frequent
    return step(expression, place, instant, instant.year - NEVER_FIRES_YEARS)


def occurrences_between(cron: str, timezone: str, *, after: datetime, before: datetime) -> Iterator[datetime]:
    """The occurrences later than ``after`` and earlier than ``before``, one at a time; cut it with ``islice``."""
    due = next_after(cron, timezone, after)
    while due is not None and due < before:
        last = due
        for last in _until_midnight(parse(cron), zone(timezone), due):
            if last >= before:
                return
            yield last
        due = next_after(cron, timezone, last)


def first_after(expression: Expression, place: ZoneInfo, instant: datetime, last_year: int) -> datetime | None:
    """``next_after``, none beyond the local year ``last_year``."""
    step = _next_fixed if expression.fixed else _next_frequent
    return step(expression, place, instant, last_year)


def _until_midnight(expression: Expression, place: ZoneInfo, due: datetime) -> Iterator[datetime]:
    """``due`` and, without placing each anew, what follows on its local date; ``due`` alone if clocks change then.

    An outage of weeks of a schedule for every minute is counted several times faster by this.
    """
    yield due
    wall = shown(due, place)
    if not has_change(wall.date(), place):
        offset = offsets(wall, place)[0]
        for later in expression.rest_of_day(wall):
            yield instant_of(later, offset)


def _next_fixed(expression: Expression, place: ZoneInfo, instant: datetime, last_year: int) -> datetime | None:
    wall = expression.next_wall(shown(instant, place), last_year)
    while wall is not None:
        due = _first_reached(wall, place)
        if due > instant:
            return due
        # In the second pass of a repeated time, what the clocks show next has been due already.
        wall = expression.next_wall(wall, last_year)
    return None


def _previous_fixed(expression: Expression, place: ZoneInfo, instant: datetime, first_year: int) -> datetime | None:
    now = shown(instant, place)
    if now.fold:
        # In the second pass, what the clocks showed later in the first pass is past as well.
        before, after = offsets(now, place)
        now += before - after
    wall = expression.previous_wall(now, first_year)
    while wall is not None:
        due = _first_reached(wall, place)
        if due <= instant:
            return due
        wall = expression.previous_wall(wall - _JUST_BEFORE, first_year)
    return None


def _next_frequent(expression: Expression, place: ZoneInfo, instant: datetime, last_year: int) -> datetime | None:
    now = shown(instant, place)
    due = _next_shown(expression, place, instant, now, last_year)
    before, after = offsets(now, place)
    if now.fold or before <= after:
        return due
    # In the first pass of a repeated time the clocks are about to go back; look from there too.
    put_back = shown(change_near(now, place), place) - _JUST_BEFORE
    return _chosen(min, due, _next_shown(expression, place, instant, put_back, last_year))


def _previous_frequent(expression: Expression, place: ZoneInfo, instant: datetime, first_year: int) -> datetime | None:
    now = shown(instant, place)
    due = _previous_shown(expression, place, instant, now, first_year)
    if not now.fold:
        return due
    # In the second pass of a repeated time, the rest of the first pass is past as well.
    before, after = offsets(now, place)
    ahead = shown(change_near(now, place), place) + (before - after) - _JUST_BEFORE
    return _chosen(max, due, _previous_shown(expression, place, instant, ahead, first_year))


def _next_shown(
    expression: Expression, place: ZoneInfo, instant: datetime, wall: datetime, last_year: int
) -> datetime | None:
    """The first instant later than ``instant`` that shows the next matching wall time after ``wall``."""
    found = expression.next_wall(wall, last_year)
    while found is not None:
        for due in _showing(found, place):
            if due > instant:
                return due
        found = expression.next_wall(found, last_year)
    return None


def _previous_shown(
    expression: Expression, place: ZoneInfo, instant: datetime, wall: datetime, first_year: int
) -> datetime | None:
    """The last instant not later than ``instant`` that shows the last matching wall time up to ``wall``."""
    found = expression.previous_wall(wall, first_year)
    while found is not None:
        for due in reversed(_showing(found, place)):
            if due <= instant:
                return due
        found = expression.previous_wall(found - _JUST_BEFORE, first_year)
    return None


def _first_reached(wall: datetime, place: ZoneInfo) -> datetime:
    """The first instant at which clocks show ``wall``, or the first after the gap that swallows it."""
    before, after = offsets(wall, place)
    return change_near(wall, place) if before < after else instant_of(wall, before)


def _showing(wall: datetime, place: ZoneInfo) -> tuple[datetime, ...]:
    """The instants at which clocks show ``wall``: none in a gap, two in a repeated hour."""
    before, after = offsets(wall, place)
    if before < after:
        return ()
    if before == after:
        return (instant_of(wall, before),)
    return instant_of(wall, before), instant_of(wall, after)


def _chosen(
    choose: Callable[[datetime, datetime], datetime], one: datetime | None, other: datetime | None
) -> datetime | None:
    if one is None or other is None:
        return one or other
    return choose(one, other)
