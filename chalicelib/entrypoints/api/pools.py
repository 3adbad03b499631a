"""Pools: the slots that runs share."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from ...access import narrowed
from ...kernel.paging import Page
from ...kernel.records import Record
from ...runs.pools import PoolChange, PoolView, Precondition
from .routing import Call, Nothing, Reply, Resource
from .scopes import installation, own
from .shapes import Paging

resource = Resource("pools")


class PoolPath(Record):
    """A pool, by its name. Those of the worker kinds are shown and not set."""

    pool: Annotated[str, Field(pattern=r"^(worker:)?[a-z0-9_-]{1,100}$")]


@resource.operation("GET", "/pools", permission="runs.read", scope=own)
def list_pools(call: Call[Nothing, Paging, None]) -> Page[PoolView]:
    """List the pools by name, with what is in use. Holders are shown as far as the caller's token reaches."""
    location, target = narrowed(call.principal, None, None)
    return call.services.pools.list(location, target, call.query.limit, call.query.cursor)


@resource.operation(
    "PUT",
    "/pools/{pool}",
    permission="administer",
    scope=installation,
    statuses=[HTTPStatus.OK, HTTPStatus.CREATED],
    conditional=True,
)
def set_pool(call: Call[PoolPath, Nothing, PoolChange]) -> Reply[PoolView]:
    """Set the limit of a pool, or make one (201). Needs If-Match, or If-None-Match: * for a new one.

    Runs that hold slots keep them, also above the new limit. A pool that has this limit already is answered as it is.
    """
    view, fresh = call.services.pools.set(call.path.pool, call.body, _condition(call))
    return Reply(HTTPStatus.CREATED if fresh else HTTPStatus.OK, view, etag=view.etag)


def _condition(call: Call[PoolPath, Nothing, PoolChange]) -> Precondition:
    return Precondition(
        if_match=_tags(call.conditions.get("if-match", "")),
        if_none_match=_tags(call.conditions.get("if-none-match", "")),
    )


def _tags(header: str) -> frozenset[str]:
    """The entity tags of a header, in their quotes, or ``*``. Weak ones match nothing here, as strong comparison wants."""
    return frozenset(tag.strip() for tag in header.split(",") if tag.strip())
