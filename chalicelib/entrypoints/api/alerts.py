"""Alerts: what the platform tells people without being asked."""

from __future__ import annotations

from ...access import narrowed
from ...alerts.model import AlertView, Condition
from ...alerts.service import AlertFilter
from ...kernel.paging import Page
from .routing import Call, Nothing, Resource
from .scopes import own
from .shapes import Key, Paging

resource = Resource("alerts")


class AlertsQuery(Paging):
    """Which alerts; an absent filter does not restrict. ``open=true`` leaves out those whose condition has ended."""

    open: bool | None = None
    condition: Condition | None = None
    location: Key | None = None
    target: Key | None = None


@resource.operation("GET", "/alerts", permission="runs.read", scope=own)
def list_alerts(call: Call[Nothing, AlertsQuery, None]) -> Page[AlertView]:
    """List alerts, newest first.

    A condition that lasts is one alert. A location's token sees those about the runs and schedules of its location; those
    about shards, queues and clocks belong to the installation.
    """
    query = call.query
    location, target = narrowed(call.principal, query.location, query.target)
    reach = call.principal.scope
    if call.principal.kind != "operator" and (location, target) != (reach.location, reach.target or target):
        return Page([], None)
    filters = AlertFilter(open=query.open, condition=query.condition, location=location, target=target)
    return call.services.alerts.alerts(filters, query.limit, query.cursor)
