"""Add and disable locations, set their targets."""

from __future__ import annotations

import re

from ..database import Database, Transaction
from ..kernel import limits
from ..kernel.errors import InvalidRequest, NotFound
from ..kernel.paging import Page, check_limit, decode_cursor, encode_cursor
from ..kernel.records import KEY_PATTERN
from ..leases.lowering import HintLowering, all_shards, never
from . import store
from .model import LocationView, TargetSettings, TargetView
from .plan import applied, check_agreement, check_change

_LIST = {"list": "locations"}


class LocationService:
    """Locations of one installation; every operation may be repeated with the same effect."""

    def __init__(self, database: Database, lowering: HintLowering) -> None:
        self._database = database
        self._lowering = lowering

    def add(self, location: str) -> bool:
        """Add an enabled location; ``False`` when it was there already (and is left as it is)."""
        _check_key("location", location)
        return self._lowering.lowered(all_shards, lambda tx: store.add(tx, location), wakes=never)

    def set_disabled(self, location: str, disabled: bool) -> None:
        """Disable (no claims, no publications) or enable a location. Raises ``NotFound``."""

        def change(tx: Transaction) -> None:
            if not store.set_disabled(tx, location, disabled=disabled):
                raise _no_location(location)

        self._lowering.lowered(all_shards, change)

    def set_target(self, location: str, target: str, settings: TargetSettings) -> TargetView:
        """Create or replace a target's settings.

        Raises ``NotFound`` (location), ``HasLiveClaims``, or ``InvalidRequest`` where two targets of one warehouse
        would disagree.
        """
        _check_key("target", target)
        after = applied(location, target, settings)
        return self._lowering.lowered(all_shards, lambda tx: _set_target(tx, after))

    def list(self, limit: int | None = None, cursor: str | None = None) -> Page[LocationView]:
        """Locations with their targets, by name."""
        size = check_limit(limit)
        after = decode_cursor(_LIST, cursor, 1)[0] if cursor else None
        with self._database.transaction() as tx:
            found = store.page(tx, after, size + 1)
        more = len(found) > size
        return Page(found[:size], encode_cursor(_LIST, [found[size - 1].location]) if more else None)


def _set_target(tx: Transaction, after: TargetView) -> TargetView:
    before = store.lock_target(tx, after.location, after.target)
    if before is None:
        _check_new(tx, after.location)
    check_change(before, after, live_claims=store.has_live_claims(tx, after.location, after.target))
    check_agreement(after, store.others_of_warehouse(tx, after))
    store.put_target(tx, after)
    return after


def _check_new(tx: Transaction, location: str) -> None:
    if not store.exists(tx, location):
        raise _no_location(location)
    if store.count_targets(tx, location) >= limits.TARGETS_PER_LOCATION:
        raise InvalidRequest.of_field("target", f"a location has at most {limits.TARGETS_PER_LOCATION} targets")


def _no_location(location: str) -> NotFound:
    return NotFound.of_field(
        "location", f"there is no location {location!r}; add it with `tidemill admin location add`"
    )


def _check_key(field: str, value: str) -> None:
    if not re.fullmatch(KEY_PATTERN, value):
        raise InvalidRequest.of_field(field, f"{value!r} does not fit; use 1 to 100 of a-z, 0-9, '_' and '-'")
