"""``tidemill backfill``: making up for a stretch of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer

from ..client.address import path_of
from ..kernel.limits import BACKFILL_PARALLEL_DEFAULT, BACKFILL_PARALLEL_MAX
from .command import Session, command, noun
from .inputs import Inputs, named_values
from .options import ClientId, Cursor, JobArgument, Limit
from .output import Block, Facts, Outcome, Table, cell
from .views import chosen

_app = noun("backfill", "Backfills: a job once more for each day, hour or occurrence of a stretch of time.")

BackfillArgument = Annotated[str, typer.Argument(metavar="BACKFILL", help="Id of the backfill.")]
_PARTITIONS = "Over partitions"


def add_to(app: typer.Typer) -> None:
    """Add ``backfill``."""
    app.add_typer(_app)


@command(_app, "start")
def start_backfill(
    session: Session,
    job: JobArgument,
    over: Annotated[
        Literal["occurrences", "partitions"],
        typer.Option("--over", help="The occurrences of a schedule of the job, or partitions for an input of it."),
    ],
    first: Annotated[str, typer.Option("--from", metavar="WHEN", help="Date or instant; it belongs to the range.")],
    until: Annotated[str, typer.Option("--to", metavar="WHEN", help="Date or instant; it does not belong to it.")],
    *,
    schedule: Annotated[
        str | None, typer.Option("--schedule", metavar="NAME", help="Which schedule, when the job has several.")
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            "--step", help="How long a partition is: hour, day, week, month, year.", rich_help_panel=_PARTITIONS
        ),
    ] = None,
    start_input: Annotated[
        str | None,
        typer.Option("--start-input", metavar="NAME", help="Takes a partition's start.", rich_help_panel=_PARTITIONS),
    ] = None,
    end_input: Annotated[
        str | None,
        typer.Option("--end-input", metavar="NAME", help="Takes its end.", rich_help_panel=_PARTITIONS),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone", metavar="ZONE", help="Where its days begin; default: UTC.", rich_help_panel=_PARTITIONS
        ),
    ] = None,
    max_parallel: Annotated[
        int, typer.Option("--max-parallel", min=1, max=BACKFILL_PARALLEL_MAX, help="Runs at once.")
    ] = BACKFILL_PARALLEL_DEFAULT,
    inputs: Inputs = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the items and their inputs.")] = False,
    identity: ClientId = None,
) -> Outcome:
    """Start a backfill. Its id is printed before it is sent, so that a lost answer can be repeated with --id."""
    location, target = session.place()
    asked = {
        "location": location, "target": target, "job": job, "over": over, "from": first, "to": until,
        "schedule": schedule, "step": step, "start_input": start_input, "end_input": end_input, "timezone": timezone,
        "inputs": named_values(inputs or []),
    }  # fmt: skip
    if dry_run:
        return _planned(session.api.call("POST", "/backfills/plan", body=asked, repeatable=True).body)
    backfill_id = session.announce_id(identity, "bkf", "backfill id")
    body = {**asked, "backfill_id": backfill_id, "max_parallel": max_parallel}
    found = session.api.call("POST", "/backfills", body=body, repeatable=True).body
    return Outcome(found, _blocks(found), f"the backfill is {backfill_id}; see `tidemill backfill show {backfill_id}`")


@command(_app, "list")
def list_backfills(
    session: Session,
    *,
    job: Annotated[str | None, typer.Option("--job", help="Backfills of this job only.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", help="active, paused, cancelling, completed, cancelled.")
    ] = None,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Not only of the project's location and target.")
    ] = False,
    limit: Limit = None,
    cursor: Cursor = None,
) -> Outcome:
    """List backfills, newest first, one page."""
    location, target = (session.options.location, session.options.target) if everywhere else session.place_if_known()
    query = {"location": location, "target": target, "job": job, "state": state, "limit": limit, "cursor": cursor}
    page = session.api.call("GET", "/backfills", query=query).body
    if page.get("next_cursor"):
        session.say(f"there are more: --cursor {page['next_cursor']}")
    columns = ("backfill_id", "job", "over", "from", "to", "state", "items", "waiting", "counts", "created_at")
    return Outcome(page, [Table(*chosen(columns, page["items"]), empty="no such backfills")])


@command(_app, "show")
def show_backfill(session: Session, backfill_id: BackfillArgument) -> Outcome:
    """Show a backfill: how far it is, what its next item waits for, and the runs of its items."""
    path = path_of("backfills", backfill_id)
    found = session.api.call("GET", path).body
    items = list(session.api.pages(f"{path}/items"))
    columns = ("item", "state", "end_reason", "run_id", "retry_number")
    table = Table(*chosen(columns, items), empty="no item has begun")
    return Outcome({**found, "begun": items}, [*_blocks(found), table])


@command(_app, "pause")
def pause_backfill(session: Session, backfill_id: BackfillArgument) -> Outcome:
    """Make no new runs; those that there are go on."""
    return _changed(session, backfill_id, "pause")


@command(_app, "resume")
def resume_backfill(session: Session, backfill_id: BackfillArgument) -> Outcome:
    """Go on where it was paused."""
    return _changed(session, backfill_id, "resume")


@command(_app, "cancel")
def cancel_backfill(session: Session, backfill_id: BackfillArgument) -> Outcome:
    """Make no more runs, then cancel those that have not ended; what has ended stays."""
    return _changed(session, backfill_id, "cancel")


def _changed(session: Session, backfill_id: str, change: str) -> Outcome:
    """A change of state, which changes nothing when it is repeated."""
    found = session.api.call("POST", path_of("backfills", backfill_id, change), body={}, repeatable=True).body
    return Outcome(found, _blocks(found), f"backfill {backfill_id} is {found['state']}")


def _planned(plan: Mapping[str, Any]) -> Outcome:
    rows = [(cell(one["item"]), cell(one["inputs"])) for one in plan["items"]]
    said = f"{len(rows)} items of {plan['job']} (zone {plan['timezone']}); nothing was started"
    return Outcome(dict(plan), [Table(("item", "inputs"), rows), said])


def _blocks(found: Mapping[str, Any]) -> list[Block]:
    pairs = [(name, cell(value)) for name, value in found.items() if name != "waits_for" and value not in (None, {})]
    blocks: list[Block] = [Facts(pairs)]
    if waits := found.get("waits_for"):
        columns = ("code", "subject", "since", "clears_when")
        blocks.append(Table(*chosen(columns, waits)))
    return blocks
