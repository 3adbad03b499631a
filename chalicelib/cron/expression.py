"""A parsed expression: which wall times it matches, with no zone in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from functools import lru_cache

from cronsim import CronSim, CronSimError

from ..kernel.errors import InvalidSchedule
from ..kernel.limits import PARSED_EXPRESSIONS

# Expanded by us before the library sees the text (scheduler.md 5.1).
MACROS: Mapping[str, str] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_DAY = timedelta(days=1)
# The parser wants a date, which then is not used: any one gives the same sets.
_ANY_DATE = datetime(2000, 1, 1)  # noqa: DTZ001 - a wall time, not an instant
# The edges of the calendar are left out, so that adding an offset cannot leave it.
_FIRST_YEAR, _LAST_YEAR = 2, 9998


def expanded(cron: str) -> str:
    """The five fields of ``cron`` with single spaces and in capitals; a macro as what it stands for."""
    text = " ".join(cron.split())
    return MACROS.get(text.lower(), text.upper())


class Expression:
    """The wall times of five fields. Wall times are datetimes without a zone.

    Only what ``cronsim`` parsed is used: its sets of minutes, hours and months and its rule for
    days. Its own stepping is not, since it goes astray inside a repeated hour (scheduler.md 5.1).
    """

    __slots__ = ("_hours", "_matches_day", "_minutes", "_months", "fixed", "text")

    def __init__(self, text: str) -> None:
        """Raise ``CronSimError`` when the library refuses ``text``, which has five fields."""
        parsed = CronSim(text, _ANY_DATE)
        minute, hour = text.split()[:2]
        self.text = text
        self.fixed = not minute.startswith("*") and not hour.startswith("*")
        self._minutes = sorted(parsed.minutes)
        self._hours = sorted(parsed.hours)
        self._months = frozenset(parsed.months)
        self._matches_day = parsed.match_day

    def next_wall(self, wall: datetime, last_year: int) -> datetime | None:
        """The first matching wall time later than ``wall``, none beyond ``last_year``."""
        day = wall.date()
        later = self._later_time(wall.hour, wall.minute)
        if later is not None and self._matches(day):
            return datetime.combine(day, later)
        found = self._next_day(day, min(last_year, _LAST_YEAR))
        return None if found is None else datetime.combine(found, time(self._hours[0], self._minutes[0]))

    def previous_wall(self, wall: datetime, first_year: int) -> datetime | None:
        """The last matching wall time not later than ``wall``, none before ``first_year``."""
        day = wall.date()
        earlier = self._earlier_time(wall.hour, wall.minute)
        if earlier is not None and self._matches(day):
            return datetime.combine(day, earlier)
        found = self._previous_day(day, max(first_year, _FIRST_YEAR))
        return None if found is None else datetime.combine(found, time(self._hours[-1], self._minutes[-1]))

    def rest_of_day(self, wall: datetime) -> Iterator[datetime]:
        """The matching wall times later than ``wall`` on its own date, itself being one."""
        day = wall.date()
        later = self._later_time(wall.hour, wall.minute)
        while later is not None:
            yield datetime.combine(day, later)
            later = self._later_time(later.hour, later.minute)

    def _matches(self, day: date) -> bool:
        return day.month in self._months and self._matches_day(day)

    def _later_time(self, hour: int, minute: int) -> time | None:
        at = bisect_right(self._hours, hour)
        if at and self._hours[at - 1] == hour:
            within = bisect_right(self._minutes, minute)
            if within < len(self._minutes):
                return time(hour, self._minutes[within])
        return time(self._hours[at], self._minutes[0]) if at < len(self._hours) else None

    def _earlier_time(self, hour: int, minute: int) -> time | None:
        at = bisect_right(self._hours, hour) - 1
        if at >= 0 and self._hours[at] == hour:
            within = bisect_right(self._minutes, minute)
            if within:
                return time(hour, self._minutes[within - 1])
            at -= 1
        return time(self._hours[at], self._minutes[-1]) if at >= 0 else None

    def _next_day(self, day: date, last_year: int) -> date | None:
        day += _DAY
        while day.year <= last_year:
            if day.month not in self._months:
                day = (day.replace(day=1) + 32 * _DAY).replace(day=1)
            elif self._matches_day(day):
                return day
            else:
                day += _DAY
        return None

    def _previous_day(self, day: date, first_year: int) -> date | None:
        day -= _DAY
        while day.year >= first_year:
            if day.month not in self._months:
                day = day.replace(day=1) - _DAY
            elif self._matches_day(day):
                return day
            else:
                day -= _DAY
        return None


@lru_cache(maxsize=PARSED_EXPRESSIONS)
def parse(cron: str) -> Expression:
    """The expression of ``cron``, five fields or a macro; ``InvalidSchedule`` without detail when it is none.

    ``validate`` explains what is wrong; what the scheduler parses here was validated before.
    """
    text = expanded(cron)
    try:
        if len(text.split()) != 5:  # noqa: PLR2004 - the five fields
            raise InvalidSchedule.of_field("cron", f"{cron!r} does not have five fields")
        return Expression(text)
    except CronSimError as problem:
        raise InvalidSchedule.of_field("cron", f"{cron!r} is not understood ({problem})") from None


def is_fixed(cron: str) -> bool:
    """Whether neither minute nor hour starts with ``*``: the kind whose times move out of a spring gap."""
    return parse(cron).fixed
