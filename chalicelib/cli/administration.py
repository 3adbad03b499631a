"""Two ways to administer one installation: over its API, or on its database for whoever holds the address."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..client.address import path_of
from ..kernel.errors import FieldError, InvalidRequest
from ..kernel.limits import PAGE_MAX
from .command import Session

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ..bootstrap import Services
    from ..client.api import ApiClient
    from ..kernel.paging import Page

Document = dict[str, Any]
Model = TypeVar("Model", bound="BaseModel")


class Administration(Protocol):
    """What the commands of ``admin`` ask; every answer is a JSON document."""

    def locations(self) -> list[Document]:
        """All locations with their targets."""

    def add_location(self, location: str) -> bool:
        """Add one; ``False`` when it was there."""

    def set_disabled(self, location: str, *, disabled: bool) -> None:
        """Disable or enable one."""

    def set_target(self, location: str, target: str, settings: Document) -> Document:
        """Create a target or replace its settings."""

    def set_pool(self, name: str, limit: int) -> Document:
        """Set a pool's limit, or make the pool; refused when another one changes it at the same moment."""

    def tokens(self) -> list[Document]:
        """All tokens of operators and locations."""

    def issue_token(self, kind: str, scope: Document, lifetime_seconds: int) -> Document:
        """Issue one; the answer holds its secret."""

    def revoke_token(self, token_id: str) -> bool:
        """End one; ``False`` when it was ended before."""


@contextmanager
def administration(session: Session, store: str | None) -> Iterator[Administration]:
    """On the database at ``store``, else over the API. An explicit ``--server`` wins over the environment's store."""
    if not store or session.options.server:
        yield ServerAdministration(session.api)
        return
    with store_administration(session, store) as admin:
        yield admin


@contextmanager
def store_administration(session: Session, store: str) -> Iterator[StoreAdministration]:
    """On the database at ``store``."""
    with store_services(session, store) as services:
        yield StoreAdministration(services)


@contextmanager
def store_services(session: Session, store: str) -> Iterator[Services]:
    """The services on the database at ``store``, with the AWS of the environment, whose hints every change lowers."""
    from ..bootstrap import build_services
    from ..settings import read_settings

    services = build_services(read_settings().model_copy(update={"database_url": store}), clock=session.clock)
    try:
        yield services
    finally:
        services.close()


class ServerAdministration:
    """Over the admin routes, with an operator's token."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def locations(self) -> list[Document]:
        return list(self._api.pages("/admin/locations", {"limit": PAGE_MAX}))

    def add_location(self, location: str) -> bool:
        return bool(self._call("POST", "/admin/locations", {"location": location})["added"])

    def set_disabled(self, location: str, *, disabled: bool) -> None:
        self._call("PATCH", path_of("admin", "locations", location), {"disabled": disabled})

    def set_target(self, location: str, target: str, settings: Document) -> Document:
        return self._call("PUT", path_of("admin", "locations", location, "targets", target), settings)

    def set_pool(self, name: str, limit: int) -> Document:
        known = {pool["pool"]: pool["etag"] for pool in self._api.pages("/pools", {"limit": PAGE_MAX})}
        condition = {"if-match": known[name]} if name in known else {"if-none-match": "*"}
        answer: Document = self._api.call("PUT", path_of("pools", name), body={"limit": limit}, headers=condition).body
        return answer

    def tokens(self) -> list[Document]:
        return list(self._api.pages("/admin/tokens", {"limit": PAGE_MAX}))

    def issue_token(self, kind: str, scope: Document, lifetime_seconds: int) -> Document:
        body = {"kind": kind, "scope": scope, "lifetime_seconds": lifetime_seconds}
        # not repeated: each request makes another token, and a lost answer holds a lost secret
        answer: Document = self._api.call("POST", "/admin/tokens", body=body).body
        return answer

    def revoke_token(self, token_id: str) -> bool:
        return bool(self._api.call("DELETE", path_of("admin", "tokens", token_id)).body["revoked"])

    def _call(self, method: str, path: str, body: Document) -> Document:
        """These set a state, so that a repeat changes nothing."""
        answer: Document = self._api.call(method, path, body=body, repeatable=True).body
        return answer


class StoreAdministration:
    """With the same services that the API calls, on the database."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def locations(self) -> list[Document]:
        return _all(self._services.locations.list)

    def add_location(self, location: str) -> bool:
        return self._services.locations.add(location)

    def set_disabled(self, location: str, *, disabled: bool) -> None:
        self._services.locations.set_disabled(location, disabled)

    def set_target(self, location: str, target: str, settings: Document) -> Document:
        from ..locations.model import TargetSettings

        wanted = validated(TargetSettings, settings)
        return self._services.locations.set_target(location, target, wanted).model_dump(mode="json")

    def set_pool(self, name: str, limit: int) -> Document:
        from ..runs.pools import NEW, PoolChange, Precondition

        pools = self._services.pools
        known = {pool.pool: pool.etag for pool in _every(lambda size, cursor: pools.list(None, None, size, cursor))}
        condition = Precondition(if_match=frozenset({known[name]})) if name in known else NEW
        return pools.set(name, validated(PoolChange, {"limit": limit}), condition)[0].model_dump(mode="json")

    def tokens(self) -> list[Document]:
        return _all(self._services.access.list_tokens)

    def issue_token(self, kind: str, scope: Document, lifetime_seconds: int) -> Document:
        from ..access.model import TokenScope

        wanted = validated(TokenScope, scope)
        issued = self._services.access.issue("operator" if kind == "operator" else "location", wanted, lifetime_seconds)
        return issued.model_dump(mode="json")

    def revoke_token(self, token_id: str) -> bool:
        return self._services.access.revoke(token_id)

    def reshard(self, count: int) -> list[int]:
        return self._services.scheduler.reshard(count)


def _all(read: Callable[[int | None, str | None], Page[Model]]) -> list[Document]:
    return [item.model_dump(mode="json") for item in _every(read)]


def _every(read: Callable[[int | None, str | None], Page[Model]]) -> Iterator[Model]:
    cursor: str | None = None
    while True:
        page = read(PAGE_MAX, cursor)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def validated(model: type[Model], values: Mapping[str, Any]) -> Model:
    """``values`` as a record of ours. Raises ``InvalidRequest`` naming every wrong field, as the API does."""
    from pydantic import ValidationError

    try:
        return model.model_validate(values)
    except ValidationError as problem:
        fields = [
            FieldError(".".join(map(str, one["loc"])), InvalidRequest.code, one["msg"].removeprefix("Value error, "))
            for one in problem.errors(include_url=False, include_input=False)
        ]
        raise InvalidRequest("; ".join(f"{one.field}: {one.message}" for one in fields), fields=fields) from None
