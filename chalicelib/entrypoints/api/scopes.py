"""Where an operation's permission must hold: in the path, or where the named thing belongs.

Location and target of a run, a backfill and a snapshot never change, so looking them up before the operation is safe.
"""

from __future__ import annotations

from typing import Any

from ...access import allows
from .routing import Call, Place


def installation(_: Call[Any, Any, Any]) -> Place:
    """The whole installation."""
    return Place()


def in_path(call: Call[Any, Any, Any]) -> Place:
    """The path's location and target."""
    return Place(call.path.location, call.path.target)


def own(call: Call[Any, Any, Any]) -> Place:
    """What the caller's token reaches: for lists, which show no more, and for what names its place in the body."""
    scope = call.principal.scope
    return Place(scope.location, scope.target)


def of_run(call: Call[Any, Any, Any]) -> Place:
    """The run's location and target."""
    run = call.services.runs.run(call.path.run_id)
    return Place(run.location, run.target)


def of_backfill(call: Call[Any, Any, Any]) -> Place:
    """The backfill's location and target."""
    backfill = call.services.backfills.backfill(call.path.backfill_id)
    return Place(backfill.location, backfill.target)


def of_claim(call: Call[Any, Any, Any]) -> Place:
    """The run itself: only the worker that holds its claim may act."""
    return Place(run_id=call.path.run_id)


def of_snapshot(call: Call[Any, Any, Any]) -> Place:
    """A target that the snapshot was published to: one that the caller reaches, when there is one."""
    places = call.services.catalog.places(call.path.snapshot_id)
    reached = [place for place in places if allows(call.principal, "snapshots.read", place.location, place.target)]
    chosen = (reached or places)[0]
    return Place(chosen.location, chosen.target)
