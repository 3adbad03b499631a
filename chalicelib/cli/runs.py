"""``tidemill runs``: reading runs, waiting for one, cancelling one."""

from __future__ import annotations

from typing import Annotated

import typer

from ..client.address import path_of
from ..kernel.clock import instant_text
from ..kernel.errors import UsageError
from . import logs
from .command import Session, command, noun
from .moments import instant_option
from .options import ClientId, Cursor, Limit, RunArgument
from .output import Facts, Outcome, Table, cell
from .views import chosen, run_facts, run_rows, why_blocks
from .waiting import ended_badly, wait_for_end

_app = noun("runs", "Runs: what happened, why one waits, and stopping one.")


def add_to(app: typer.Typer) -> None:
    """Add ``runs``."""
    app.add_typer(_app)


@command(_app, "list")
def list_runs(
    session: Session,
    *,
    job: Annotated[str | None, typer.Option("--job", help="Runs of this job only.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", help="queued, claimed, running, succeeded, failed ...")
    ] = None,
    origin: Annotated[str | None, typer.Option("--origin", help="schedule, manual, retry ...")] = None,
    after: Annotated[str | None, typer.Option("--after", metavar="INSTANT", help="Created later than this.")] = None,
    before: Annotated[str | None, typer.Option("--before", metavar="INSTANT", help="Created before this.")] = None,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Not only of the project's location and target.")
    ] = False,
    limit: Limit = None,
    cursor: Cursor = None,
) -> Outcome:
    """List runs, newest first, one page."""
    location, target = (session.options.location, session.options.target) if everywhere else session.place_if_known()
    query = {
        "location": location, "target": target, "job": job, "state": state, "origin": origin,
        "after": _instant("--after", after), "before": _instant("--before", before), "limit": limit, "cursor": cursor,
    }  # fmt: skip
    page = session.api.call("GET", "/runs", query=query).body
    if page.get("next_cursor"):
        session.say(f"there are more: --cursor {page['next_cursor']}")
    return Outcome(page, [Table(*run_rows(page["items"]), empty="no such runs")])


@command(_app, "show")
def show_run(session: Session, run_id: RunArgument) -> Outcome:
    """Show one run."""
    run = session.api.call("GET", path_of("runs", run_id)).body
    return Outcome(run, [run_facts(run)])


@command(_app, "why")
def why_run(session: Session, run_id: RunArgument) -> Outcome:
    """Say what a run waits for: each blocker, since when, and what would clear it."""
    why = session.api.call("GET", path_of("runs", run_id, "why")).body
    return Outcome(why, why_blocks(why))


@command(_app, "nodes")
def run_nodes(session: Session, run_id: RunArgument) -> Outcome:
    """List the nodes of a run with their results."""
    items = list(session.api.pages(path_of("runs", run_id, "nodes")))
    columns = ("node", "status", "duration_seconds", "error_code", "message")
    return Outcome({"items": items, "next_cursor": None}, [Table(*chosen(columns, items), empty="no node results yet")])


@command(_app, "events")
def run_events(session: Session, run_id: RunArgument) -> Outcome:
    """List what happened to a run, in order."""
    items = list(session.api.pages(path_of("runs", run_id, "events")))
    return Outcome(
        {"items": items, "next_cursor": None}, [Table(*chosen(("seq", "occurred_at", "kind", "payload"), items))]
    )


@command(_app, "logs")
def run_logs(
    session: Session,
    run_id: RunArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
) -> Outcome:
    """Print the log of a run."""
    if follow and session.options.json:
        raise UsageError("--follow and --json do not fit together: a log that goes on is not one document")
    if follow:
        return logs.followed(session, run_id)
    items = logs.read_all(session, run_id)
    return Outcome({"run_id": run_id, "items": items}, [one["text"].rstrip("\n") for one in items] or ["no log yet"])


@command(_app, "wait")
def wait_run(session: Session, run_id: RunArgument) -> Outcome:
    """Wait for the end of a run; exit 1 unless it succeeded. Ctrl-C leaves the run going."""
    run = wait_for_end(session, run_id)
    return Outcome(run, [run_facts(run)], exit_code=ended_badly(run))


@command(_app, "cancel")
def cancel_run(
    session: Session,
    run_id: RunArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the run.")] = "",
    identity: ClientId = None,
) -> Outcome:
    """Cancel a run: at once while it waits, by a signal to its worker while it works."""
    cancel_id = session.announce_id(identity, "can", "cancel id")
    body = {"cancel_id": cancel_id, "reason": reason}
    answer = session.api.call("POST", path_of("runs", run_id, "cancel"), body=body, repeatable=True).body
    pairs = [(name, cell(value)) for name, value in answer.items() if value not in (None, [])]
    return Outcome(answer, [Facts([("run", run_id), *pairs])], f"the cancel of {run_id} was accepted as {cancel_id}")


def _instant(option: str, text: str | None) -> str | None:
    moment = instant_option(option, text)
    return None if moment is None else instant_text(moment)
