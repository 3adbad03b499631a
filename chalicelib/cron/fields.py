"""What is wrong with one field of an expression, in words that a user can act on.

``cronsim`` has the last word on what is accepted; what stands here refuses more than it does, and
says why: dead steps, steps on one value (which the library stretches to the end of the field, so
that ``5-5/10`` would mean ``5/10``), and ranges that wrap around.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from cronsim import CronSim, CronSimError

from ..kernel.errors import FieldError

_ANY_DATE = datetime(2000, 1, 1)  # noqa: DTZ001 - the parser wants a wall time and ignores it
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SUNDAY_AGAIN = 7


@dataclass(frozen=True, slots=True)
class Field:
    """One of the five: its name in errors, its lowest and highest value, and its names for values."""

    name: str
    low: int
    high: int
    names: Sequence[str] = ()

    def value(self, token: str) -> int | None:
        """The number that a token means; ``None`` when it means none."""
        if token in self.names:
            return self.names.index(token) + (self.low if self.name == "month" else 0)
        if token.isascii() and token.isdigit() and self.low <= int(token) <= self.high:
            return int(token)
        return None

    def expected(self) -> str:
        """What a value of this field may be."""
        named = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"{self.low} to {self.high}{named}"


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day_of_month", 1, 31),
    Field("month", 1, 12, _MONTHS),
    Field("day_of_week", 0, 7, _WEEKDAYS),
)


def field_problems(texts: Sequence[str]) -> Iterator[FieldError]:
    """At most one problem for each of the five fields, in their order."""
    for position, (field, text) in enumerate(zip(FIELDS, texts, strict=True)):
        problem = next(_problems(field, position, text), None)
        if problem is not None:
            yield problem


def _problems(field: Field, position: int, text: str) -> Iterator[FieldError]:
    for term in text.split(","):
        yield from _term_problems(field, term)
    if not _library_accepts(position, text):
        yield _unknown(field, text)


def _library_accepts(position: int, text: str) -> bool:
    alone = ["*"] * len(FIELDS)
    alone[position] = text
    try:
        CronSim(" ".join(alone), _ANY_DATE)
    except CronSimError:
        return False
    return True


def _term_problems(field: Field, term: str) -> Iterator[FieldError]:
    base, slash, step = term.partition("/")
    if not term:
        yield FieldError(field.name, "unknown_token", "has an empty entry; remove the extra comma")
        return
    bounds = _bounds(field, base, stepped=bool(slash))
    if bounds is None:
        if slash or not _library_accepts(FIELDS.index(field), term):
            yield _unknown(field, term)
        return
    first, last = bounds
    if last < first:
        yield FieldError(field.name, "wrap_around", _wrap_around(field, base, first, last))
    elif slash:
        yield from _step_problems(field, term, step, range(first, last + 1))


def _bounds(field: Field, base: str, *, stepped: bool) -> tuple[int, int] | None:
    """First and last value of a term without its step; ``None`` for ``L``, ``5L``, ``1#2`` and what is unknown."""
    if base == "*":
        return field.low, field.high
    start, dash, end = base.partition("-")
    first = field.value(start)
    last = field.value(end) if dash else (field.high if stepped else first)
    return None if first is None or last is None else (first, last)


def _step_problems(field: Field, term: str, step: str, values: range) -> Iterator[FieldError]:
    if not (step.isascii() and step.isdigit() and int(step)):
        yield FieldError(field.name, "unknown_token", f"{step!r} in {term!r} is not a step; use a number from 1")
        return
    chosen = values[:: int(step)]
    if len({0 if field.name == "day_of_week" and value == _SUNDAY_AGAIN else value for value in chosen}) == 1:
        yield FieldError(
            field.name,
            "dead_step",
            f"the step of {term!r} selects only {chosen[0]} of {values[0]} to {values[-1]}; "
            f"write {chosen[0]} if that is meant, else a smaller step",
        )


def _wrap_around(field: Field, base: str, first: int, last: int) -> str:
    start, _, end = base.partition("-")
    if field.name == "day_of_week" and last == 0:
        return f"the range {base!r} ends before it starts; write {first}-{_SUNDAY_AGAIN}"
    top = field.names[-1] if field.names else str(field.high)
    bottom = field.names[0] if field.names else str(field.low)
    parts = [start if start == top else f"{start}-{top}", end if end == bottom else f"{bottom}-{end}"]
    return f"the range {base!r} ends before it starts; write two, {','.join(parts)}"


def _unknown(field: Field, token: str) -> FieldError:
    message = f"{token!r} is not understood; use {field.expected()}, lists (1,2), ranges (1-3) or steps (*/2)"
    extensions = {"day_of_month": ", L or LW", "day_of_week": ", 5L or 1#2"}
    return FieldError(field.name, "unknown_token", message + extensions.get(field.name, ""))
