"""Backfills: making up for a stretch of time, looking at it, pausing, resuming and cancelling it."""

from __future__ import annotations

from http import HTTPStatus

from ...access import narrowed, require
from ...backfills.model import BackfillPlan, BackfillRequest, BackfillView, ItemView, RangeRequest
from ...backfills.reading import BackfillFilter
from ...backfills.states import BackfillState
from ...kernel.errors import AlreadyFinished, IdReused, InvalidInputs, InvalidSchedule
from ...kernel.paging import Page
from ...kernel.records import Record
from .routing import Call, Nothing, Reply, Resource
from .scopes import of_backfill, own
from .shapes import ClientId, Key, Paging

resource = Resource("backfills")


class BackfillPath(Record):
    """A backfill."""

    backfill_id: ClientId


class BackfillsQuery(Paging):
    """Which backfills; an absent filter does not restrict."""

    location: Key | None = None
    target: Key | None = None
    job: Key | None = None
    state: BackfillState | None = None


@resource.operation(
    "POST",
    "/backfills",
    permission="runs.request",
    scope=own,
    statuses=[HTTPStatus.CREATED, HTTPStatus.OK],
    errors=[IdReused, InvalidInputs, InvalidSchedule],
)
def start_backfill(call: Call[Nothing, Nothing, BackfillRequest]) -> Reply[BackfillView]:
    """Start a backfill.

    201: it was stored. 200: this very request was made before. ``from`` belongs to the range, ``to`` does not; a date
    stands for its midnight in the zone of the schedule. At most 1,000 items; ``max_parallel`` of them run at once.
    """
    require(call.principal, "runs.request", call.body.location, call.body.target)
    view, reused = call.services.backfills.start(call.body, call.principal.name)
    return Reply(HTTPStatus.OK if reused else HTTPStatus.CREATED, view)


@resource.operation(
    "POST", "/backfills/plan", permission="runs.request", scope=own, errors=[InvalidInputs, InvalidSchedule]
)
def plan_backfill(call: Call[Nothing, Nothing, RangeRequest]) -> BackfillPlan:
    """Show what a backfill would do: its items with their inputs. Nothing is stored."""
    require(call.principal, "runs.request", call.body.location, call.body.target)
    return call.services.backfills.plan(call.body)


@resource.operation("GET", "/backfills", permission="runs.read", scope=own)
def list_backfills(call: Call[Nothing, BackfillsQuery, None]) -> Page[BackfillView]:
    """List backfills, newest first. A location's token sees those of its location."""
    query = call.query
    location, target = narrowed(call.principal, query.location, query.target)
    reach = call.principal.scope
    if call.principal.kind != "operator" and (location, target) != (reach.location, reach.target or target):
        return Page([], None)
    filters = BackfillFilter(location=location, target=target, job=query.job, state=query.state)
    return call.services.backfills.backfills(filters, query.limit, query.cursor)


@resource.operation("GET", "/backfills/{backfill_id}", permission="runs.read", scope=of_backfill)
def show_backfill(call: Call[BackfillPath, Nothing, None]) -> BackfillView:
    """Show a backfill, and what its next item waits for."""
    return call.services.backfills.backfill(call.path.backfill_id)


@resource.operation("GET", "/backfills/{backfill_id}/items", permission="runs.read", scope=of_backfill)
def list_items_of_backfill(call: Call[BackfillPath, Paging, None]) -> Page[ItemView]:
    """List the items that began, in order, with their runs."""
    return call.services.backfills.items(call.path.backfill_id, call.query.limit, call.query.cursor)


@resource.operation(
    "POST", "/backfills/{backfill_id}/pause", permission="runs.request", scope=of_backfill, errors=[AlreadyFinished]
)
def pause_backfill(call: Call[BackfillPath, Nothing, None]) -> BackfillView:
    """Make no new runs; those that there are go on."""
    return call.services.backfills.pause(call.path.backfill_id)


@resource.operation(
    "POST", "/backfills/{backfill_id}/resume", permission="runs.request", scope=of_backfill, errors=[AlreadyFinished]
)
def resume_backfill(call: Call[BackfillPath, Nothing, None]) -> BackfillView:
    """Go on where it was paused."""
    return call.services.backfills.resume(call.path.backfill_id)


@resource.operation(
    "POST",
    "/backfills/{backfill_id}/cancel",
    permission="runs.request",
    scope=of_backfill,
    statuses=[HTTPStatus.OK, HTTPStatus.ACCEPTED],
    errors=[AlreadyFinished],
)
def cancel_backfill(call: Call[BackfillPath, Nothing, None]) -> Reply[BackfillView]:
    """Make no more runs, then cancel those that have not ended; what has ended stays.

    200: it has ended. 202: its workers are asked to stop, and it ends with the last of its runs.
    """
    view = call.services.backfills.cancel(call.path.backfill_id, call.principal.name)
    return Reply(HTTPStatus.ACCEPTED if view.state == "cancelling" else HTTPStatus.OK, view)
