"""Pools: what they allow, who holds them, and setting their limits.

The use of a pool is the sum of its slots, read when somebody asks; nothing counts along (S31). A limit below the use
grants nothing more and takes nothing away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from ..database import Database, Transaction, load_queries
from ..kernel.canonical import digest_of
from ..kernel.errors import InvalidRequest, PreconditionFailed, PreconditionRequired
from ..kernel.limits import POOL_HOLDERS_NAMED, POOL_LIMIT_MAX
from ..kernel.paging import Page, check_limit, decode_cursor, encode_cursor
from ..kernel.records import Record
from ..leases.lowering import HintLowering, all_shards
from ..settings import WORKER_SETTING
from .plan import WORKER_POOL_PREFIX

QUERIES = load_queries(__package__, "pools.sql")

_LIST = {"list": "pools"}
_ETAG_DIGITS = 16


class PoolChange(Record):
    """``PUT /pools/{pool}``: the whole pool."""

    limit: Annotated[int, Field(ge=0, le=POOL_LIMIT_MAX)]


class PoolView(Record):
    """A pool: slots in all, in use and free (below zero when the limit was set below the use).

    ``holders`` are up to ten runs that hold slots of it, as far as the caller may see them. ``etag`` names the limit as it
    stands, for ``If-Match``.
    """

    pool: str
    limit: int
    used: int
    free: int
    holders: list[str]
    etag: str


@dataclass(frozen=True, slots=True)
class Precondition:
    """What a change of a whole document was made from: the tags of ``If-Match``, or that it is new (``If-None-Match: *``)."""

    if_match: frozenset[str] = frozenset()
    if_none_match: frozenset[str] = frozenset()

    def check(self, etag: str | None) -> None:
        """Refuse when the document is another one than the caller knows; ``etag`` is ``None`` when there is none."""
        if not self.if_match and not self.if_none_match:
            raise PreconditionRequired(
                "send If-Match with the etag that GET /v1/pools shows, or If-None-Match: * for a new pool"
            )
        matches = etag is not None and (etag in self.if_match or "*" in self.if_match)
        if self.if_match and not matches:
            raise PreconditionFailed(
                "it was changed, or is not there; look at GET /v1/pools and send the etag shown there"
            )
        if self.if_none_match and etag is not None and (etag in self.if_none_match or "*" in self.if_none_match):
            raise PreconditionFailed("it is there already; send If-Match with the etag that GET /v1/pools shows")


NEW = Precondition(if_none_match=frozenset({"*"}))


class PoolService:
    """Pools of one installation."""

    def __init__(self, database: Database, lowering: HintLowering) -> None:
        self._database = database
        self._lowering = lowering

    def list(
        self, location: str | None, target: str | None, limit: int | None = None, cursor: str | None = None
    ) -> Page[PoolView]:
        """Pools by name; ``holders`` only of that location and target, when they are given."""
        size = check_limit(limit)
        after = decode_cursor(_LIST, cursor, 1)[0] if cursor else ""
        with self._database.transaction() as tx:
            found = _pools(tx, location=location, target=target, after=after, limit=size + 1)
        more = len(found) > size
        return Page(found[:size], encode_cursor(_LIST, [found[size - 1].pool]) if more else None)

    def set(self, name: str, change: PoolChange, condition: Precondition) -> tuple[PoolView, bool]:
        """Set a pool's limit; the second part says whether the pool is new.

        A pool that has this limit already is answered as it is: a repeat after a lost answer is no conflict. Raises
        ``InvalidRequest`` for a worker kind's pool, ``PreconditionRequired``, ``PreconditionFailed``.
        """
        _check_name(name)
        return self._lowering.lowered(all_shards, lambda tx: _set(tx, name, change.limit, condition))


def etag_of(pool: str, limit: int) -> str:
    """The entity tag of a pool with that limit, in quotes as it travels."""
    return f'"{digest_of({"pool": pool, "limit": limit})[:_ETAG_DIGITS]}"'


def _check_name(name: str) -> None:
    kind = name.removeprefix(WORKER_POOL_PREFIX)
    if kind != name:
        setting = WORKER_SETTING.get(kind)
        advice = f"the setting {setting}" if setting else "the installation's settings"
        raise InvalidRequest.of_field("pool", f"the limit of a worker kind comes from {advice}; set it there")


def _set(tx: Transaction, name: str, limit: int, condition: Precondition) -> tuple[PoolView, bool]:
    row = tx.row(QUERIES["lock_pool"], pool=name)
    if row is None:
        condition.check(None)
        if tx.row(QUERIES["add_pool"], pool=name, slot_limit=limit) is not None:
            return _one(tx, name), True
        row = tx.row(QUERIES["lock_pool"], pool=name)  # another one made it between the look and the insert
    before = -1 if row is None else row["slot_limit"]
    if before == limit and (condition.if_match or condition.if_none_match):
        return _one(tx, name), False
    condition.check(etag_of(name, before))
    tx.execute(QUERIES["set_limit"], pool=name, slot_limit=limit)
    return _one(tx, name), False


def _one(tx: Transaction, name: str) -> PoolView:
    (found,) = _pools(tx, name=name, limit=1)
    return found


def _pools(
    tx: Transaction,
    *,
    limit: int,
    after: str = "",
    name: str | None = None,
    location: str | None = None,
    target: str | None = None,
) -> list[PoolView]:
    rows = tx.rows(
        QUERIES["pools_page"],
        after=after, name=name, location=location, target=target, limit=limit, holders=POOL_HOLDERS_NAMED,
    )  # fmt: skip
    return [_view(row) for row in rows]


def _view(row: Mapping[str, Any]) -> PoolView:
    return PoolView(
        pool=row["pool"],
        limit=row["slot_limit"],
        used=row["used"],
        free=row["slot_limit"] - row["used"],
        holders=row["holders"],
        etag=etag_of(row["pool"], row["slot_limit"]),
    )
