"""Schedules played over a period, tick by tick, by the functions that the scheduler uses. Pure.

A playback is what a scheduler does that is never late, over a period in which no schedule is edited or switched. It says
nothing about runs except which ticks share one: those of one instant that want the same run.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..cron import PreviewedOccurrence, occurrence_at
from ..kernel.canonical import canonical_json
from ..kernel.errors import InvalidRequest, TidemillError
from ..kernel.limits import PLAYED_DAYS_MAX, PLAYED_TICKS_MAX
from ..projects.bundle import JobDefinition
from .inputs import occurrence_inputs
from .model import Due, ScheduleSpec
from .plan import first_cursor, next_due_at, plan

BUSIEST_MINUTES = 10
# Far from the ends of the calendar, where no zone has a meaning.
_FIRST_YEAR, _LAST_YEAR = 1900, 9000
_JUST_BEFORE = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class PlayedSchedule:
    """A schedule to play. ``definition`` is its job's, needed only to see whether two ticks want the same run."""

    name: str
    job: str
    spec: ScheduleSpec
    definition: JobDefinition | None = None


@dataclass(frozen=True, slots=True)
class PlayedTick:
    """One tick; ``covered_by`` names the schedule whose tick of that instant asks for the same run."""

    schedule: str
    job: str
    occurrence: PreviewedOccurrence
    covered_by: str | None


@dataclass(frozen=True, slots=True)
class BusyMinute:
    """A minute that begins at ``begins_at``: its ticks, the runs they ask for, and the schedules, by name."""

    begins_at: datetime
    ticks: int
    runs: int
    schedules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Playback:
    """All ticks in order, the busiest minutes (most ticks first), and why schedules could not be played, by name."""

    ticks: tuple[PlayedTick, ...]
    busiest_minutes: tuple[BusyMinute, ...]
    problems: Mapping[str, str]


def play(schedules: Sequence[PlayedSchedule], begin: datetime, end: datetime) -> Playback:
    """Play from ``begin`` until before ``end``; both are instants in UTC.

    Raises ``InvalidRequest`` naming ``from`` or ``to`` for a period that is none or too long, or has too many ticks.
    A schedule that cannot be computed is left out and does not stop the others (S20).
    """
    _check_period(begin, end)
    problems: dict[str, str] = {}
    ticks: list[PlayedTick] = []
    first: dict[tuple[datetime, str, str], str] = {}
    for schedule, due in _in_order(schedules, begin, end, problems):
        if len(ticks) == PLAYED_TICKS_MAX:
            raise InvalidRequest.of_field(
                "to",
                f"there are more than {PLAYED_TICKS_MAX:,} ticks in this period, {PLAYED_TICKS_MAX:,} of them before "
                f"{due.scheduled_for:%Y-%m-%dT%H:%M:%SZ}; choose an earlier end",
            )
        try:
            same_run = (due.scheduled_for, schedule.job, _inputs_text(schedule, due))
        except TidemillError as problem:
            problems[schedule.name] = problem.detail
            continue
        asking = first.setdefault(same_run, schedule.name)
        occurrence = occurrence_at(schedule.spec.timezone, due.scheduled_for)
        ticks.append(PlayedTick(schedule.name, schedule.job, occurrence, None if asking == schedule.name else asking))
    return Playback(tuple(ticks), _busiest(ticks), problems)


def _check_period(begin: datetime, end: datetime) -> None:
    for name, instant in (("from", begin), ("to", end)):
        if instant.tzinfo is None or not _FIRST_YEAR <= instant.year <= _LAST_YEAR:
            raise InvalidRequest.of_field(name, f"use an instant with a zone between {_FIRST_YEAR} and {_LAST_YEAR}")
    if end <= begin:
        raise InvalidRequest.of_field("to", "the period ends before it begins; choose a later end")
    if end - begin > timedelta(days=PLAYED_DAYS_MAX):
        raise InvalidRequest.of_field(
            "to", f"the period is longer than {PLAYED_DAYS_MAX:,} days; choose an earlier end"
        )


def _in_order(
    schedules: Sequence[PlayedSchedule], begin: datetime, end: datetime, problems: dict[str, str]
) -> Iterator[tuple[PlayedSchedule, Due]]:
    """The ticks of all schedules as passes take them: by instant, then by name."""
    return heapq.merge(
        *(_ticks(schedule, begin, end, problems) for schedule in schedules),
        key=lambda played: (played[1].scheduled_for, played[0].name),
    )


def _ticks(
    schedule: PlayedSchedule, begin: datetime, end: datetime, problems: dict[str, str]
) -> Iterator[tuple[PlayedSchedule, Due]]:
    """The ticks of one schedule, until its end or a problem."""
    try:
        for due in _planned(schedule.spec, begin, end):
            yield schedule, due
    except (TidemillError, ValueError, ArithmeticError) as problem:
        problems[schedule.name] = str(problem)


def _planned(spec: ScheduleSpec, begin: datetime, end: datetime) -> Iterator[Due]:
    """What is planned at each instant at which something becomes due."""
    cursor = first_cursor(spec, begin - _JUST_BEFORE)
    now = next_due_at(spec, cursor)
    while now is not None and now < end:
        due = plan(spec, cursor, now)
        if due is None:
            raise ValueError(f"no tick is planned at {now}, although one is owed")
        yield due
        cursor = due.cursor(spec)
        now = next_due_at(spec, cursor)


def _inputs_text(schedule: PlayedSchedule, due: Due) -> str:
    if schedule.definition is None or not schedule.definition.inputs:
        return ""
    return canonical_json(occurrence_inputs(schedule.definition, schedule.spec, due.scheduled_for))


def _busiest(ticks: Sequence[PlayedTick]) -> tuple[BusyMinute, ...]:
    minutes = [tick.occurrence.scheduled_for.replace(second=0, microsecond=0) for tick in ticks]
    counted = Counter(minutes).items()
    chosen = heapq.nsmallest(BUSIEST_MINUTES, counted, key=lambda entry: (-entry[1], entry[0]))
    within: dict[datetime, list[PlayedTick]] = {minute: [] for minute, _ in chosen}
    for minute, tick in zip(minutes, ticks, strict=True):
        if minute in within:
            within[minute].append(tick)
    return tuple(_busy_minute(minute, of_minute) for minute, of_minute in within.items())


def _busy_minute(minute: datetime, ticks: Sequence[PlayedTick]) -> BusyMinute:
    runs = sum(tick.covered_by is None for tick in ticks)
    return BusyMinute(minute, len(ticks), runs, tuple(sorted({tick.schedule for tick in ticks})))
