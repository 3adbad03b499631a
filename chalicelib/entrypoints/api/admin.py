"""Locations, targets and tokens: what an operator sets up."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from ...access import IssuedToken, TokenScope, TokenView
from ...access.model import IssuedKind
from ...kernel.errors import HasLiveClaims
from ...kernel.limits import LOCATION_TOKEN_SECONDS, TOKEN_MAX_SECONDS, TOKEN_MIN_SECONDS
from ...kernel.paging import Page
from ...kernel.records import Record
from ...locations.model import LocationView, TargetSettings, TargetView
from .routing import Call, Nothing, Reply, Resource
from .scopes import installation
from .shapes import Key, LocationPath, Paging, TargetPath

resource = Resource("admin")


class NewLocation(Record):
    """The location to add."""

    location: Key


class AddedLocation(Record):
    """``added`` is false when it was there already."""

    location: str
    added: bool


class LocationChange(Record):
    """What to change of a location. A disabled one gets no claims and no publications."""

    disabled: bool


class ChangedLocation(Record):
    """The location as it is now."""

    location: str
    disabled: bool


class NewToken(Record):
    """The token to issue; the lifetime is in seconds."""

    kind: IssuedKind
    scope: TokenScope = TokenScope()
    lifetime_seconds: Annotated[int, Field(ge=TOKEN_MIN_SECONDS, le=TOKEN_MAX_SECONDS)] = LOCATION_TOKEN_SECONDS


class TokenPath(Record):
    """A token, by its id, which is no secret."""

    token_id: Annotated[str, Field(pattern=r"^tok_[0-9a-f]{32}$")]


class RevokedToken(Record):
    """``revoked`` is false when it was revoked before."""

    token_id: str
    revoked: bool


@resource.operation("GET", "/admin/locations", permission="administer", scope=installation)
def list_locations(call: Call[Nothing, Paging, None]) -> Page[LocationView]:
    """List locations with their targets, by name."""
    return call.services.locations.list(call.query.limit, call.query.cursor)


@resource.operation(
    "POST",
    "/admin/locations",
    permission="administer",
    scope=installation,
    statuses=[HTTPStatus.CREATED, HTTPStatus.OK],
)
def add_location(call: Call[Nothing, Nothing, NewLocation]) -> Reply[AddedLocation]:
    """Add a location; adding it again changes nothing."""
    added = call.services.locations.add(call.body.location)
    status = HTTPStatus.CREATED if added else HTTPStatus.OK
    return Reply(status, AddedLocation(location=call.body.location, added=added))


@resource.operation("PATCH", "/admin/locations/{location}", permission="administer", scope=installation)
def change_location(call: Call[LocationPath, Nothing, LocationChange]) -> ChangedLocation:
    """Disable or enable a location."""
    call.services.locations.set_disabled(call.path.location, call.body.disabled)
    return ChangedLocation(location=call.path.location, disabled=call.body.disabled)


@resource.operation(
    "PUT",
    "/admin/locations/{location}/targets/{target}",
    permission="administer",
    scope=installation,
    errors=[HasLiveClaims],
)
def set_target(call: Call[TargetPath, Nothing, TargetSettings]) -> TargetView:
    """Create a target or replace its settings as a whole."""
    return call.services.locations.set_target(call.path.location, call.path.target, call.body)


@resource.operation("GET", "/admin/tokens", permission="administer", scope=installation)
def list_tokens(call: Call[Nothing, Paging, None]) -> Page[TokenView]:
    """List the tokens of operators and locations, newest first; never a secret."""
    return call.services.access.list_tokens(call.query.limit, call.query.cursor)


@resource.operation("POST", "/admin/tokens", permission="administer", scope=installation, statuses=[HTTPStatus.CREATED])
def issue_token(call: Call[Nothing, Nothing, NewToken]) -> IssuedToken:
    """Issue a token. Its secret is shown in this answer and never again."""
    wanted = call.body
    return call.services.access.issue(wanted.kind, wanted.scope, wanted.lifetime_seconds)


@resource.operation("DELETE", "/admin/tokens/{token_id}", permission="administer", scope=installation)
def revoke_token(call: Call[TokenPath, Nothing, None]) -> RevokedToken:
    """End a token at once."""
    return RevokedToken(token_id=call.path.token_id, revoked=call.services.access.revoke(call.path.token_id))
