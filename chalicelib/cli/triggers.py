"""``tidemill triggers``: what makes jobs run, and when next."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..client.address import path_of
from ..kernel.clock import instant_text
from ..kernel.errors import UsageError
from .command import Session, command, noun
from .moments import instant_option
from .options import ClientId, Cursor, Limit
from .output import Outcome, Table
from .views import chosen, facts, occurrence_blocks, trigger_rows

_app = noun("triggers", "Triggers of the current jobs, their ticks and next occurrences.")

TriggerArgument = Annotated[str, typer.Argument(metavar="TRIGGER", help="Name, as in orders/schedule.")]


def add_to(app: typer.Typer) -> None:
    """Add ``triggers``."""
    app.add_typer(_app)


@command(_app, "list")
def list_triggers(session: Session) -> Outcome:
    """List the triggers of a location and target with their next occurrence."""
    items = list(session.api.pages(_path(session)))
    return Outcome(
        {"items": items, "next_cursor": None}, [Table(*trigger_rows(items), empty="no triggers are published here")]
    )


@command(_app, "show")
def show_trigger(session: Session, name: TriggerArgument) -> Outcome:
    """Show one trigger."""
    found = session.api.call("GET", _path(session, name)).body
    return Outcome(found, [facts(found)])


@command(_app, "enable")
def enable_trigger(session: Session, name: TriggerArgument, identity: ClientId = None) -> Outcome:
    """Let a trigger make runs again; nothing is made up for the time before."""
    return _set_enabled(session, name, identity, enabled=True)


@command(_app, "disable")
def disable_trigger(session: Session, name: TriggerArgument, identity: ClientId = None) -> Outcome:
    """Stop a trigger; a publication that keeps it leaves it stopped."""
    return _set_enabled(session, name, identity, enabled=False)


@command(_app, "ticks")
def list_ticks(session: Session, name: TriggerArgument, limit: Limit = None, cursor: Cursor = None) -> Outcome:
    """List the occurrences that were acted on, newest first, one page."""
    page = session.api.call("GET", _path(session, name, "ticks"), query={"limit": limit, "cursor": cursor}).body
    if page.get("next_cursor"):
        session.say(f"there are more: --cursor {page['next_cursor']}")
    columns = ("scheduled_for", "local_slot", "outcome", "run_id", "covered_by", "lateness_seconds", "skipped")
    return Outcome(page, [Table(*chosen(columns, page["items"]), empty="no tick yet")])


@command(_app, "preview")
def preview_trigger(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(metavar="[TRIGGER]", help="A published trigger; or give --cron.")
    ] = None,
    *,
    cron: Annotated[str | None, typer.Option("--cron", metavar="EXPRESSION", help="Preview any expression.")] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="Its zone, as in Europe/Berlin.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="INSTANT", help="Occurrences later than this; default: now.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=500, help="How many occurrences.")] = 10,
) -> Outcome:
    """Show the next occurrences with local time, UTC and clock changes. With --cron it needs no server."""
    moment = instant_option("--after", after)
    if (name is None) == (cron is None):
        raise UsageError("give either the name of a trigger, or --cron and --timezone")
    if cron is None:
        query = {"after": instant_text(moment) if moment else None, "count": count}
        found = session.api.call("GET", _path(session, str(name), "preview"), query=query).body
    elif timezone is None:
        raise UsageError.of_field("--timezone", "a schedule has no default zone; name one, as in Europe/Berlin or UTC")
    else:
        from ..cron import preview

        found = _document(preview(cron, timezone, moment or session.clock.now(), count))
    return Outcome(found, occurrence_blocks(found), warnings=found.get("warnings") or ())


def _set_enabled(session: Session, name: str, identity: str | None, *, enabled: bool) -> Outcome:
    request_id = session.announce_id(identity, "req", "request id")
    body = {"enabled": enabled, "request_id": request_id}
    found = session.api.call("PATCH", _path(session, name), body=body, repeatable=True).body
    return Outcome(found, [facts(found)], f"{name} was {'enabled' if enabled else 'disabled'} by request {request_id}")


def _path(session: Session, *parts: str) -> str:
    location, target = session.place()
    return path_of("locations", location, "targets", target, "triggers", *parts)


def _document(preview: Any) -> dict[str, Any]:
    """The same document that the route gives."""
    from ..schedules.views import OccurrenceView, PreviewView

    occurrences = [
        OccurrenceView(
            scheduled_for=one.scheduled_for,
            local_time=one.local_time,
            abbreviation=one.abbreviation,
            zone_change=one.zone_change,
            region_time=one.region_time,
        )
        for one in preview.occurrences
    ]
    view = PreviewView(
        cron=preview.cron,
        timezone=preview.timezone,
        occurrences=occurrences,
        warnings=list(preview.warnings),
        day_rule=preview.day_rule,
    )
    return view.model_dump(mode="json")
