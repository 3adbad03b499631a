"""All operations, in the order in which the reference shows them."""

from __future__ import annotations

from .routing import Operation


def operations() -> list[Operation]:
    """The table that routes, the OpenAPI document and the tests are made from."""
    from . import admin, alerts, backfills, health, jobs, pools, runs, snapshots, triggers, worker

    modules = (health, snapshots, jobs, triggers, runs, backfills, pools, alerts, worker, admin)
    return [row for module in modules for row in module.resource.operations]
