"""Queries of locations and targets, typed."""

from __future__ import annotations

from collections import defaultdict

from ..database import Transaction, load_queries
from ..kernel.canonical import canonical_json
from .model import LocationView, TargetView

QUERIES = load_queries(__package__)
# All targets of a warehouse agree with each other, so a few stand for all.
_OTHERS_COMPARED = 10


def add(tx: Transaction, location: str) -> bool:
    """Add a location, enabled; ``False`` when it was there."""
    return tx.execute(QUERIES["add_location"], location=location) == 1


def set_disabled(tx: Transaction, location: str, *, disabled: bool) -> bool:
    """Disable or enable a location; ``False`` when there is none."""
    return tx.execute(QUERIES["set_disabled"], location=location, disabled=disabled) == 1


def exists(tx: Transaction, location: str) -> bool:
    """Whether there is such a location."""
    return tx.row(QUERIES["location_exists"], location=location) is not None


def page(tx: Transaction, after: str | None, limit: int) -> list[LocationView]:
    """Locations by name with their targets, in two statements."""
    rows = tx.rows(QUERIES["locations_page"], after=after, limit=limit)
    targets: dict[str, list[TargetView]] = defaultdict(list)
    for row in tx.rows(QUERIES["targets_of_locations"], locations=[row["location"] for row in rows]):
        targets[row["location"]].append(TargetView(**row))
    return [LocationView(**row, targets=tuple(targets[row["location"]])) for row in rows]


def lock_target(tx: Transaction, location: str, target: str) -> TargetView | None:
    """The target as it stands, locked, after every other change of settings has ended."""
    tx.rows(QUERIES["lock_settings"])
    row = tx.row(QUERIES["lock_target"], location=location, target=target)
    return None if row is None else TargetView(**row)


def count_targets(tx: Transaction, location: str) -> int:
    """How many targets a location has."""
    return int(tx.rows(QUERIES["count_targets"], location=location)[0]["targets"])


def has_live_claims(tx: Transaction, location: str, target: str) -> bool:
    """Whether runs of this target hold write claims, settling ones included."""
    return bool(tx.rows(QUERIES["has_live_claims"], location=location, target=target)[0]["live"])


def others_of_warehouse(tx: Transaction, view: TargetView) -> list[TargetView]:
    """Other targets of the same warehouse."""
    rows = tx.rows(
        QUERIES["others_of_warehouse"],
        warehouse=view.warehouse,
        location=view.location,
        target=view.target,
        limit=_OTHERS_COMPARED,
    )
    return [TargetView(**row) for row in rows]


def put_target(tx: Transaction, view: TargetView) -> None:
    """Store a target's settings."""
    tx.execute(QUERIES["put_target"], **{**view.model_dump(), "environment": canonical_json(view.environment)})
