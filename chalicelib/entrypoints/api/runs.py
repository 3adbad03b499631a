"""Runs: lists, one run with its nodes, events, reasons and logs; cancelling, rerunning and resolving it."""

from __future__ import annotations

from http import HTTPStatus

from ...access import narrowed
from ...kernel.errors import (
    AlreadyFinished,
    IdReused,
    InvalidInputs,
    NothingToRerun,
    NotTerminal,
    StillBeating,
)
from ...kernel.paging import Page
from ...kernel.records import Instant, Record
from ...runs.cancelling import CancelAnswer
from ...runs.model import CancelRequest, EventView, NodeView, RerunRequest, ResolveRequest, RunDetail, RunView, WhyView
from ...runs.reading import RunFilter
from ...runs.resolving import ResolveAnswer
from ...runs.service import LogLink
from ...runs.states import RunState
from .jobs import RequestedRun
from .routing import Call, Nothing, Reply, Resource
from .scopes import of_run, own
from .shapes import Key, Paging, RunPath

resource = Resource("runs")


class RunsQuery(Paging):
    """Which runs; an absent filter does not restrict. ``after`` and ``before`` bound the time of creation."""

    location: Key | None = None
    target: Key | None = None
    job: Key | None = None
    state: RunState | None = None
    origin: str | None = None
    after: Instant | None = None
    before: Instant | None = None


class Logs(Record):
    """The parts of a run's log, in order, with links that expire."""

    items: list[LogLink]


@resource.operation("GET", "/runs", permission="runs.read", scope=own)
def list_runs(call: Call[Nothing, RunsQuery, None]) -> Page[RunView]:
    """List runs, newest first. A location's token sees the runs of its location."""
    query = call.query
    location, target = narrowed(call.principal, query.location, query.target)
    filters = RunFilter(
        location=location,
        target=target,
        **query.model_dump(include={"job", "state", "origin", "after", "before"}),
    )
    reach = call.principal.scope
    if call.principal.kind != "operator" and (location, target) != (reach.location, reach.target or target):
        return Page([], None)
    return call.services.runs.runs(filters, query.limit, query.cursor)


@resource.operation("GET", "/runs/{run_id}", permission="runs.read", scope=of_run)
def show_run(call: Call[RunPath, Nothing, None]) -> RunDetail:
    """Show a run, with what was seen of its workers."""
    return call.services.runs.shown(call.path.run_id)


@resource.operation("GET", "/runs/{run_id}/nodes", permission="runs.read", scope=of_run)
def list_nodes_of_run(call: Call[RunPath, Paging, None]) -> Page[NodeView]:
    """List the nodes that a run has reported."""
    return call.services.runs.nodes(call.path.run_id, call.query.limit, call.query.cursor)


@resource.operation("GET", "/runs/{run_id}/events", permission="runs.read", scope=of_run)
def list_events_of_run(call: Call[RunPath, Paging, None]) -> Page[EventView]:
    """List what happened to a run, in order."""
    return call.services.runs.events(call.path.run_id, call.query.limit, call.query.cursor)


@resource.operation("GET", "/runs/{run_id}/why", permission="runs.read", scope=of_run)
def why_run(call: Call[RunPath, Nothing, None]) -> WhyView:
    """Say what a run waits for, or how far it has come."""
    return call.services.runs.why(call.path.run_id)


@resource.operation("GET", "/runs/{run_id}/logs", permission="logs.read", scope=of_run)
def list_logs_of_run(call: Call[RunPath, Nothing, None]) -> Logs:
    """Give signed links to a run's log."""
    return Logs(items=call.services.runs.logs(call.path.run_id))


@resource.operation(
    "POST",
    "/runs/{run_id}/cancel",
    permission="runs.cancel",
    scope=of_run,
    statuses=[HTTPStatus.OK, HTTPStatus.ACCEPTED],
    errors=[AlreadyFinished],
)
def cancel_run(call: Call[RunPath, Nothing, CancelRequest]) -> Reply[CancelAnswer]:
    """Cancel a run.

    200: it is cancelled, or another cancel was first. 202: its worker has it and is asked to stop. The same
    ``cancel_id`` gives the same answer.
    """
    answer = call.services.runs.cancel(call.path.run_id, call.body, call.principal.name)
    return Reply(HTTPStatus.ACCEPTED if answer.status == "cancel_requested" else HTTPStatus.OK, answer)


@resource.operation(
    "POST",
    "/runs/{run_id}/rerun",
    permission="runs.request",
    scope=of_run,
    statuses=[HTTPStatus.CREATED, HTTPStatus.OK],
    errors=[NotTerminal, NothingToRerun, IdReused, InvalidInputs],
)
def rerun_run(call: Call[RunPath, Nothing, RerunRequest]) -> Reply[RequestedRun]:
    """Queue a finished run once more, with its snapshot, inputs and selection.

    ``current``: by the job's current definition instead, with the same inputs. ``from_failed``: only the nodes that were
    not built, and what lies below them. 200: the same request was made before, and this is its run.
    """
    run, reused = call.services.runs.rerun(call.path.run_id, call.body, call.principal.name)
    return Reply(HTTPStatus.OK if reused else HTTPStatus.CREATED, RequestedRun(run=run, reused=reused))


@resource.operation(
    "POST",
    "/runs/{run_id}/resolve",
    permission="runs.resolve",
    scope=of_run,
    errors=[StillBeating, NotTerminal, AlreadyFinished],
)
def resolve_run(call: Call[RunPath, Nothing, ResolveRequest]) -> ResolveAnswer:
    """Say how a run ended that is marked lost, or free the relations that a finished one still holds.

    Its claim ends, its slots and relations are free at once, and a later report of its worker is refused. The same
    ``resolve_id`` gives the same answer.
    """
    return call.services.runs.resolve(call.path.run_id, call.body, call.principal.name)
