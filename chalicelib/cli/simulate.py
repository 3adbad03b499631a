"""``tidemill simulate``: what schedules will do, played over a period before it comes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..client.address import path_of
from ..kernel.clock import instant_text
from ..kernel.errors import UsageError
from ..kernel.limits import PLAYED_DAYS_DEFAULT, PLAYED_TICKS_MAX, RELATIONS_NAMED
from .command import Session, command
from .context import find_project_folder
from .moments import instant_option
from .options import Python
from .output import Block, Facts, Outcome, Table, cell
from .project import compiled

if TYPE_CHECKING:
    from ..projects.bundle import JobDefinition, SnapshotIndex
    from ..schedules.playback import BusyMinute, Playback, PlayedSchedule, PlayedTick


@dataclass(frozen=True, slots=True)
class _Found:
    """Where schedules came from, and why other triggers are not among them."""

    source: str
    location: str | None
    target: str | None
    schedules: Sequence[PlayedSchedule]
    left_out: Mapping[str, str] = field(default_factory=dict)


def add_to(app: typer.Typer) -> None:
    """Add ``simulate``."""
    command(app, "simulate")(simulate)


def simulate(
    session: Session,
    project: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PROJECT]",
            help="Project folder, or bundle folder of `compile --out`; default: what is published, else the project here.",
        ),
    ] = None,
    *,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="INSTANT", help="Begin of the period; default: now.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="INSTANT", help="Its end, not included; default: 7 days later.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, max=PLAYED_TICKS_MAX, help="List only the first ticks; all are counted."),
    ] = None,
    python: Python = None,
) -> Outcome:
    """Play schedules over a period: each tick with local time, UTC and clock changes, and the busiest minutes."""
    first = instant_option("--from", begin) or session.clock.now()
    last = instant_option("--to", end) or _default_end(first)
    found = _found(session, project, python)
    from ..schedules.playback import play

    playback = play(found.schedules, first, last)
    document = _document(found, playback, (first, last), limit)
    left_out = {**found.left_out, **playback.problems}
    return Outcome(document, _blocks(document), warnings=[f"{name}: {why}" for name, why in left_out.items()])


def _default_end(begin: datetime) -> datetime:
    try:
        return begin + timedelta(days=PLAYED_DAYS_DEFAULT)
    except OverflowError:
        raise UsageError.of_field("--from", "lies at the end of the calendar; choose an earlier instant") from None


# --- where schedules come from


def _found(session: Session, project: Path | None, python: Path | None) -> _Found:
    if project is not None and (project / "index.json").is_file():
        if python is not None:
            raise UsageError("this bundle is compiled already; leave --python out")
        from ..projects.bundle import read_bundle

        return _declared(read_bundle(project).index, *session.place_if_known())
    if project is not None and not project.is_dir():
        raise UsageError.of_field("PROJECT", f"{project} is no folder; name a project's or a bundle's")
    if project is not None or _only_here(session):
        compilation = compiled(session, project, python)
        return _declared(compilation.index, session.options.location or compilation.location, compilation.target)
    return _published(session)


def _only_here(session: Session) -> bool:
    """Whether there is a project in this folder and no server to ask."""
    try:
        session.connection()
    except UsageError:
        if find_project_folder(session.folder) is None:
            raise
        return True
    return False


def _declared(index: SnapshotIndex, location: str | None, target: str | None) -> _Found:
    triggers = [
        {**trigger.model_dump(mode="json"), "job": job.job} for job in index.jobs.values() for trigger in job.triggers
    ]
    schedules, left_out = _sorted_out(triggers)
    return _Found("project", location, target, _as_played(schedules, index.jobs), left_out)


def _published(session: Session) -> _Found:
    location, target = session.place()
    place = path_of("locations", location, "targets", target)
    schedules, left_out = _sorted_out(session.api.pages(f"{place}/triggers"))
    # Only of a job with several schedules can two ticks want one run, and only then do its inputs matter.
    jobs = [str(trigger["job"]) for trigger in schedules]
    definitions = {
        job: _definition(session.api.call("GET", f"{place}/jobs{path_of(job)}").body["definition"])
        for job in sorted({job for job in jobs if jobs.count(job) > 1})
    }
    return _Found("published", location, target, _as_played(schedules, definitions), left_out)


def _definition(document: Mapping[str, Any]) -> JobDefinition:
    from ..projects.bundle import JobDefinition

    return JobDefinition.model_validate(document)


def _sorted_out(triggers: Iterable[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], dict[str, str]]:
    """The schedules that would tick, and why each other trigger would not."""
    schedules: list[Mapping[str, Any]] = []
    left_out: dict[str, str] = {}
    for trigger in triggers:
        if trigger["kind"] != "schedule":
            left_out[trigger["name"]] = f"is a {trigger['kind']} sensor, which has no times to play"
        elif not trigger["enabled"]:
            left_out[trigger["name"]] = "is disabled and makes no ticks"
        else:
            schedules.append(trigger)
    return schedules, left_out


def _as_played(
    schedules: Sequence[Mapping[str, Any]], definitions: Mapping[str, JobDefinition]
) -> list[PlayedSchedule]:
    from ..schedules.model import ScheduleSpec
    from ..schedules.playback import PlayedSchedule

    return [
        PlayedSchedule(one["name"], one["job"], ScheduleSpec(**one["spec"]), definitions.get(one["job"]))
        for one in schedules
    ]


# --- the answer


def _document(
    found: _Found, playback: Playback, period: tuple[datetime, datetime], limit: int | None
) -> dict[str, Any]:
    ticks = playback.ticks if limit is None else playback.ticks[:limit]
    return {
        "source": found.source,
        "location": found.location,
        "target": found.target,
        "from": instant_text(period[0]),
        "to": instant_text(period[1]),
        "schedules": len(found.schedules),
        "ticks": len(playback.ticks),
        "runs": sum(tick.covered_by is None for tick in playback.ticks),
        "items": [_tick(tick) for tick in ticks],
        "busiest_minutes": [_minute(minute) for minute in playback.busiest_minutes],
        "left_out": [{"trigger": name, "reason": why} for name, why in {**found.left_out, **playback.problems}.items()],
    }


def _tick(tick: PlayedTick) -> dict[str, Any]:
    shown = tick.occurrence
    return {
        "trigger": tick.schedule,
        "job": tick.job,
        "scheduled_for": instant_text(shown.scheduled_for),
        "local_time": shown.local_time,
        "abbreviation": shown.abbreviation,
        "timezone": shown.timezone,
        "zone_change": shown.zone_change,
        "outcome": "requested" if tick.covered_by is None else "covered",
        "covered_by": tick.covered_by,
    }


def _minute(minute: BusyMinute) -> dict[str, Any]:
    return {
        "minute": instant_text(minute.begins_at),
        "ticks": minute.ticks,
        "runs": minute.runs,
        "triggers": list(minute.schedules),
    }


def _blocks(document: Mapping[str, Any]) -> list[Block]:
    items, total = document["items"], document["ticks"]
    rows = [
        (
            cell(one["local_time"]),
            cell(one["abbreviation"]),
            cell(one["scheduled_for"]),
            cell(one["trigger"]),
            _note(one),
        )
        for one in items
    ]
    names = ("source", "location", "target", "from", "to", "schedules", "ticks", "runs")
    blocks: list[Block] = [
        Facts([(name, cell(document[name])) for name in names]),
        Table(("local time", "zone", "UTC", "trigger", "note"), rows, empty="no tick in this period"),
    ]
    if len(items) < total:
        blocks.append(f"and {total - len(items):,} more (--limit)")
    if document["busiest_minutes"]:
        blocks += ["busiest minutes:", _busiest(document["busiest_minutes"])]
    return blocks


def _note(tick: Mapping[str, Any]) -> str:
    notes = ["clocks change"] if tick["zone_change"] else []
    if tick["covered_by"] is not None:
        notes.append(f"covered by {cell(tick['covered_by'])}")
    return ", ".join(notes)


def _busiest(minutes: Sequence[Mapping[str, Any]]) -> Table:
    rows = [(cell(one["minute"]), cell(one["ticks"]), cell(one["runs"]), _named(one["triggers"])) for one in minutes]
    return Table(("UTC", "ticks", "runs", "triggers"), rows)


def _named(names: Sequence[str]) -> str:
    more = len(names) - RELATIONS_NAMED
    return cell(names[:RELATIONS_NAMED]) + (f" and {more} more" if more > 0 else "")
