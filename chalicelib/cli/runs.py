"""``tidemill runs``: reading runs, waiting for one; cancelling, rerunning and resolving one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..client.address import path_of
from ..kernel.clock import instant_text
from ..kernel.errors import NotFound, UsageError
from . import logs
from .command import Session, command, noun
from .moments import instant_option
from .operating import operating
from .options import ClientId, Cursor, DirectStore, Limit, RunArgument, Wait
from .output import Facts, Outcome, Table, cell
from .views import chain_rows, chosen, run_blocks, run_facts, run_rows, why_blocks
from .waiting import ended_badly, requested, wait_for_end

_app = noun("runs", "Runs: what happened, why one waits, stopping one, and running one again.")


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
    store: DirectStore = None,
) -> Outcome:
    """List runs, newest first, one page."""
    location, target = (session.options.location, session.options.target) if everywhere else session.place_if_known()
    query = {
        "location": location, "target": target, "job": job, "state": state, "origin": origin,
        "after": _instant("--after", after), "before": _instant("--before", before), "limit": limit, "cursor": cursor,
    }  # fmt: skip
    with operating(session, store) as operator:
        page = operator.runs(query)
    if page.get("next_cursor"):
        session.say(f"there are more: --cursor {page['next_cursor']}")
    return Outcome(page, [Table(*run_rows(page["items"]), empty="no such runs")])


@command(_app, "show")
def show_run(session: Session, run_id: RunArgument) -> Outcome:
    """Show one run, what was seen of its workers, and the chain of retries that it stands in."""
    run = session.api.call("GET", path_of("runs", run_id)).body
    chain = _chain(session, run)
    return Outcome(run, [*run_blocks(run), *([Table(*chain_rows(chain))] if len(chain) > 1 else [])])


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
    store: DirectStore = None,
) -> Outcome:
    """Cancel a run: at once while it waits, by a signal to its worker while it works."""
    cancel_id = session.announce_id(identity, "can", "cancel id")
    with operating(session, store) as operator:
        answer = operator.cancel(run_id, {"cancel_id": cancel_id, "reason": reason})
    return _done(run_id, answer, f"the cancel of {run_id} was accepted as {cancel_id}")


@command(_app, "rerun")
def rerun_run(
    session: Session,
    run_id: RunArgument,
    *,
    current: Annotated[
        bool, typer.Option("--current", help="By the job as it is published now, with the same inputs.")
    ] = False,
    from_failed: Annotated[
        bool, typer.Option("--from-failed", help="Only the nodes that were not built, and what lies below them.")
    ] = False,
    wait: Wait = False,
    identity: ClientId = None,
) -> Outcome:
    """Run a finished run once more, as it was. The id of the new run is printed before it is sent."""
    if current and from_failed:
        raise UsageError("--current and --from-failed exclude each other: the nodes of another snapshot did not fail")
    new_id = session.announce_id(identity, "run", "run id")
    body = {"run_id": new_id, "current": current, "from_failed": from_failed}
    answer = session.api.call("POST", path_of("runs", run_id, "rerun"), body=body, repeatable=True).body
    return requested(session, answer, wait=wait)


@command(_app, "resolve")
def resolve_run(
    session: Session,
    run_id: RunArgument,
    *,
    outcome: Annotated[str, typer.Option("--outcome", metavar="STATE", help="succeeded, failed or cancelled.")],
    reason: Annotated[str, typer.Option("--reason", help="How you know; kept with the run.")],
    identity: ClientId = None,
    store: DirectStore = None,
) -> Outcome:
    """Say how a run ended that is marked lost, or free the relations that a finished one still holds."""
    resolve_id = session.announce_id(identity, "res", "resolve id")
    with operating(session, store) as operator:
        answer = operator.resolve(run_id, {"resolve_id": resolve_id, "outcome": outcome, "reason": reason})
    return _done(run_id, answer, f"the resolution of {run_id} was accepted as {resolve_id}", answer.get("warnings", []))


def _done(run_id: str, answer: dict[str, Any], committed: str, warnings: Sequence[str] = ()) -> Outcome:
    pairs = [(name, cell(value)) for name, value in answer.items() if value not in (None, []) and name != "run_id"]
    return Outcome(answer, [Facts([("run", run_id), *pairs])], committed, warnings=warnings)


def _chain(session: Session, run: dict[str, Any]) -> list[dict[str, Any]]:
    """The first run and its retries, oldest first, as far as they are kept; a run without any is its own chain."""
    chain = deque([run])
    while earlier := _linked(session, chain[0], "retry_of"):
        chain.appendleft(earlier)
    while later := _linked(session, chain[-1], "retried_by"):
        chain.append(later)
    return list(chain)


def _linked(session: Session, run: dict[str, Any], name: str) -> dict[str, Any] | None:
    if not run.get(name):
        return None
    try:
        found: dict[str, Any] = session.api.call("GET", path_of("runs", run[name])).body
    except NotFound:  # retention has taken it
        return None
    return found


def _instant(option: str, text: str | None) -> str | None:
    moment = instant_option(option, text)
    return None if moment is None else instant_text(moment)
