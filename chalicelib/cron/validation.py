"""Checking a schedule before anything is stored (scheduler.md 5.2). The one way in for other packages."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime

from ..kernel.clock import Clock, SystemClock
from ..kernel.errors import FieldError, InvalidSchedule
from ..kernel.limits import CRON_TEXT_CHARACTERS, NEVER_FIRES_YEARS, VALIDATION_STOP_SECONDS
from .expression import MACROS, Expression, expanded, parse
from .fields import FIELDS, field_problems
from .occurrences import first_after
from .zones import REGION_OF_ABBREVIATION, unknown_zone, zone, zone_names


@dataclass(frozen=True, slots=True)
class ValidatedSchedule:
    """A schedule that is accepted: as written, its five fields in capitals, and what its author should know."""

    cron: str
    timezone: str
    expanded: str
    warnings: tuple[str, ...] = ()


def validate(cron: str, timezone: str, *, after: datetime, clock: Clock | None = None) -> ValidatedSchedule:
    """Accept a schedule that fires within 50 years of ``after``, or raise ``InvalidSchedule``.

    The error has one entry in ``fields`` for each wrong field: ``minute``, ``hour``, ``day_of_month``,
    ``month``, ``day_of_week``, ``timezone``, or ``cron`` for the text as a whole. ``clock`` only limits
    the time that this may take (1 s; usual expressions need well under a millisecond).
    """
    problems = [*_cron_problems(cron), *_zone_problems(timezone)]
    if problems:
        raise _refused(problems)
    if not _fires(expanded(cron), timezone, after, clock or SystemClock()):
        raise _refused(_never(expanded(cron), after))
    return ValidatedSchedule(cron, timezone, expanded(cron), zone_warnings(timezone))


def zone_warnings(timezone: str) -> tuple[str, ...]:
    """What the author of a schedule in a fixed offset should know; nothing for ``UTC`` and regions."""
    region = REGION_OF_ABBREVIATION.get(timezone)
    if region is None:
        return ()
    advice = f"name a region, such as {region}, if its clocks are meant"
    return (f"timezone: {timezone} is a fixed offset that never changes to summer time; {advice}",)


def _refused(problems: Sequence[FieldError]) -> InvalidSchedule:
    return InvalidSchedule("; ".join(f"{one.field}: {one.message}" for one in problems), fields=problems)


def _cron_problems(cron: str) -> Iterator[FieldError]:
    text = cron.strip()
    whole = _text_problem(text) or (_macro_problem(text) if text.startswith("@") else _count_problem(text))
    if whole is not None:
        yield whole
    elif not text.startswith("@"):
        yield from field_problems(expanded(text).split())


def _text_problem(text: str) -> FieldError | None:
    if not text:
        return FieldError("cron", "empty", "is empty; write five fields, such as 15 6 * * 1-5")
    if len(text) > CRON_TEXT_CHARACTERS:
        return FieldError("cron", "too_long", f"has {len(text)} characters; at most {CRON_TEXT_CHARACTERS} are read")
    if not text.isascii() or not text.replace("\t", " ").isprintable():
        return FieldError("cron", "unknown_token", "holds characters other than plain letters, digits and signs")
    return None


def _macro_problem(text: str) -> FieldError | None:
    name = text.lower()
    if name in MACROS:
        return None
    if name == "@reboot":
        return FieldError("cron", "unknown_macro", "@reboot has no time; use five fields, or request a run by hand")
    near = difflib.get_close_matches(name, MACROS, n=1)
    advice = f"did you mean {near[0]}?" if near else f"use one of {', '.join(MACROS)}"
    return FieldError("cron", "unknown_macro", f"{text!r} is not a macro; {advice}")


def _count_problem(text: str) -> FieldError | None:
    parts = text.split()
    if len(parts) == len(FIELDS):
        return None
    message = f"has {len(parts)} fields; write five: minute hour day_of_month month day_of_week"
    if "TZ=" in parts[0].upper():
        message = f"starts with {parts[0]!r}; give the zone in timezone and five fields here"
    elif len(parts) == len(FIELDS) + 1:
        message += " (neither seconds nor years)"
    return FieldError("cron", "wrong_field_count", message)


def _zone_problems(timezone: str) -> Iterator[FieldError]:
    if timezone not in zone_names():
        yield FieldError("timezone", "unknown_timezone", unknown_zone(timezone))


def _fires(text: str, timezone: str, after: datetime, clock: Clock) -> bool:
    """Look year by year, so that the time that this takes is checked often."""
    stop_at = clock.elapsed_seconds() + VALIDATION_STOP_SECONDS
    expression, place, begin = _possible(text), zone(timezone), after
    if expression is None:
        return False
    for year in _years(after):
        if first_after(expression, place, begin, year) is not None:
            return True
        if clock.elapsed_seconds() > stop_at:
            message = f"takes longer than {VALIDATION_STOP_SECONDS:g} s to check; write it more simply"
            raise _refused([FieldError("cron", "too_slow", message)])
        # A local year begins up to a day before or after the one in UTC.
        begin = max(after, datetime(year, 12, 31, tzinfo=UTC))
    return False


def _years(after: datetime) -> range:
    return range(after.year, min(after.year + NEVER_FIRES_YEARS, MAXYEAR - 1) + 1)


def _possible(text: str) -> Expression | None:
    """The parsed expression; ``None`` when the library found that no month has such a day."""
    try:
        return parse(text)
    except InvalidSchedule:  # each field alone is fine, so their combination is what it refused
        return None


def _never(text: str, after: datetime) -> list[FieldError]:
    message = f"never fires: within {NEVER_FIRES_YEARS} years no time matches {text}"
    expression = _possible(text)
    if expression and expression.next_wall(after.replace(tzinfo=None), after.year + NEVER_FIRES_YEARS):
        gap = "the clocks always skip its times, and nothing is moved when minute or hour starts with '*'"
        return [FieldError("hour", "never_fires", f"never fires: {gap}")]
    day_of_month, _, day_of_week = text.split()[2:]
    given = [("day_of_month", day_of_month), ("day_of_week", day_of_week)]
    return [FieldError(name, "never_fires", message) for name, value in given if value != "*"]
