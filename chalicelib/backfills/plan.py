"""What a backfill does next: its items behind a cursor, their inputs, and the decision of one step. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from pydantic import JsonValue

from ..cron import next_after, occurrences_between, previous_at
from ..cron.zones import zone
from ..kernel.clock import instant_text, parse_instant
from ..projects.bundle import JobDefinition
from ..projects.inputs import resolve_inputs
from .model import Item, Range
from .states import BackfillState

_JUST_BEFORE = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Standing:
    """How an unfinished backfill stands.

    ``unfinished`` are its runs that have not ended, waiting retries too. ``job_room`` is what the job's concurrency
    leaves. ``job_waits``: a run of the job waits that did not come from an item. ``made_ahead`` are items behind the
    cursor that have their run already.
    """

    state: BackfillState
    max_parallel: int
    unfinished: int
    job_room: int
    job_waits: bool
    cursor: str | None
    made_ahead: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class NextStep:
    """Items to begin now, in order; or the state in which the backfill has ended; or its runs to be cancelled."""

    items: Sequence[Item] = ()
    ended: BackfillState | None = None
    cancel_runs: bool = False


def items_after(asked: Range, cursor: str | None) -> Iterator[Item]:
    """The items behind the one that ``cursor`` names, in order, one at a time."""
    after = asked.first - _JUST_BEFORE if cursor is None else _instant_of(asked, cursor)
    for at in occurrences_between(asked.cron, asked.timezone, after=after, before=asked.until):
        yield Item(_text(at, asked.timezone, as_date=asked.dates), at)


def inputs_of(
    asked: Range, definition: JobDefinition, given: Mapping[str, JsonValue], item: Item
) -> dict[str, JsonValue]:
    """The inputs of an item's run. Raises ``InvalidInputs`` naming every wrong field.

    An occurrence gives what its tick would have given; a partition gives its start, and its end, which is the start of
    the next one, to the inputs that take them.
    """
    if asked.over == "occurrences":
        place = zone(asked.timezone)
        before = previous_at(asked.cron, asked.timezone, item.at - _JUST_BEFORE)
        return resolve_inputs(definition, given, item.at.astimezone(place), before and before.astimezone(place))
    bounds: dict[str, JsonValue] = {}
    for name, at in ((asked.start_input, item.at), (asked.end_input, next_after(asked.cron, asked.timezone, item.at))):
        if name is not None and at is not None:
            bounds[name] = _text(at, asked.timezone, as_date=definition.inputs[name].type == "date")
    return resolve_inputs(definition, {**given, **bounds})


def next_step(asked: Range, standing: Standing, budget: int) -> NextStep:
    """What to do now, with at most ``budget`` new runs.

    A failed item stops nothing. A run of the job that waits goes first: a backfill must not hold up today's schedule.
    """
    if standing.state == "cancelling":
        return NextStep(cancel_runs=True) if standing.unfinished else NextStep(ended="cancelled")
    waiting = (item for item in items_after(asked, standing.cursor) if item.name not in standing.made_ahead)
    first = next(waiting, None)
    if first is None:
        return NextStep() if standing.unfinished else NextStep(ended="completed")
    if standing.state == "paused" or standing.job_waits:
        return NextStep()
    room = min(standing.max_parallel - standing.unfinished, standing.job_room, budget)
    return NextStep([first, *islice(waiting, room - 1)] if room > 0 else ())


def cursor_after(asked: Range, cursor: str | None, made: Collection[str]) -> str | None:
    """The cursor behind the unbroken series of items that are ``made``."""
    for item in items_after(asked, cursor):
        if item.name not in made:
            break
        cursor = item.name
    return cursor


def _text(at: datetime, timezone: str, *, as_date: bool) -> str:
    return at.astimezone(zone(timezone)).date().isoformat() if as_date else instant_text(at)


def _instant_of(asked: Range, name: str) -> datetime:
    """The instant that an item's name means; a range of dates is counted in UTC."""
    return datetime.fromisoformat(name).replace(tzinfo=UTC) if asked.dates else parse_instant(name)
