"""Triggers: when a job is due, what came of it, and switching it on and off."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ...kernel.errors import IdReused, InvalidSchedule
from ...kernel.limits import CRON_TEXT_CHARACTERS, PREVIEW_OCCURRENCES_MAX
from ...kernel.paging import Page
from ...kernel.records import Instant, Record
from ...schedules.views import PreviewView, TickView, TriggerView
from .routing import Call, Nothing, Resource
from .scopes import in_path, own
from .shapes import ClientId, Paging, TargetPath

resource = Resource("triggers")

_PREVIEWED = 10
Count = Annotated[int, Field(ge=1, le=PREVIEW_OCCURRENCES_MAX)]


class TriggerPath(TargetPath):
    """A trigger; its name, such as ``orders/schedule``, is percent-encoded."""

    name: Annotated[str, Field(min_length=1, max_length=300)]


class TriggerChange(Record):
    """Switch a trigger. The same ``request_id`` with the same wish gives the same answer."""

    enabled: bool
    request_id: ClientId


class PreviewQuery(Record):
    """From when (now by default), and how many."""

    after: Instant | None = None
    count: Count = _PREVIEWED


class PreviewRequest(PreviewQuery):
    """Any schedule, published or not."""

    cron: Annotated[str, Field(max_length=CRON_TEXT_CHARACTERS)]
    timezone: Annotated[str, Field(max_length=100)]


class Triggers(Record):
    """All triggers of a target, by name; always one page."""

    items: list[TriggerView]
    next_cursor: None = None


@resource.operation("GET", "/locations/{location}/targets/{target}/triggers", permission="triggers.read", scope=in_path)
def list_triggers(call: Call[TargetPath, Nothing, None]) -> Triggers:
    """List a target's triggers with their next occurrences."""
    return Triggers(items=call.services.schedules.triggers(call.path.location, call.path.target))


@resource.operation(
    "GET", "/locations/{location}/targets/{target}/triggers/{name}", permission="triggers.read", scope=in_path
)
def show_trigger(call: Call[TriggerPath, Nothing, None]) -> TriggerView:
    """Show a trigger."""
    return call.services.schedules.trigger(call.path.location, call.path.target, call.path.name)


@resource.operation(
    "PATCH",
    "/locations/{location}/targets/{target}/triggers/{name}",
    permission="triggers.manage",
    scope=in_path,
    errors=[IdReused],
)
def change_trigger(call: Call[TriggerPath, Nothing, TriggerChange]) -> TriggerView:
    """Enable or disable a trigger. One that is enabled starts at this moment, or where its policy says."""
    path, wanted = call.path, call.body
    return call.services.schedules.set_enabled(
        path.location, path.target, path.name, enabled=wanted.enabled, request_id=wanted.request_id
    )


@resource.operation(
    "GET", "/locations/{location}/targets/{target}/triggers/{name}/ticks", permission="triggers.read", scope=in_path
)
def list_ticks(call: Call[TriggerPath, Paging, None]) -> Page[TickView]:
    """List the ticks of a trigger, newest first."""
    path, query = call.path, call.query
    return call.services.schedules.ticks(path.location, path.target, path.name, query.limit, query.cursor)


@resource.operation(
    "GET",
    "/locations/{location}/targets/{target}/triggers/{name}/preview",
    permission="triggers.read",
    scope=in_path,
    errors=[InvalidSchedule],
)
def preview_trigger(call: Call[TriggerPath, PreviewQuery, None]) -> PreviewView:
    """Show the next occurrences of a published schedule."""
    path, query = call.path, call.query
    return call.services.schedules.preview_of(path.location, path.target, path.name, query.after, query.count)


@resource.operation("POST", "/schedules/preview", permission="triggers.read", scope=own, errors=[InvalidSchedule])
def preview_schedule(call: Call[Nothing, Nothing, PreviewRequest]) -> PreviewView:
    """Show the next occurrences of any schedule."""
    wanted = call.body
    return call.services.schedules.preview(wanted.cron, wanted.timezone, wanted.after, wanted.count)
