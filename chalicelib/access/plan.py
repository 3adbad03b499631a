"""The decision what a caller may do. Pure; every route and every list asks here (scheduler.md 14.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ..kernel.errors import Forbidden, NotFound
from .model import Grant, Principal, TokenScope

Permission = Literal[
    "runs.read",
    "runs.request",
    "runs.cancel",
    "runs.resolve",
    "logs.read",
    "triggers.read",
    "triggers.manage",
    "snapshots.read",
    "snapshots.publish",
    "worker.accept",
    "worker.ended",
    "worker.run",
    "administer",
]

# What each grant of a location token allows inside its scope. Routes for roles and metadata do not exist yet.
_OF_GRANT: Mapping[Grant, frozenset[Permission]] = {
    "publish": frozenset({"snapshots.publish", "snapshots.read", "triggers.read", "runs.read"}),
    "work": frozenset({"worker.accept", "worker.ended"}),
    "roles": frozenset(),
    "metadata": frozenset(),
}


def allows(
    principal: Principal,
    permission: Permission,
    location: str | None = None,
    target: str | None = None,
    *,
    run_id: str | None = None,
) -> bool:
    """Whether ``principal`` may do that there.

    Without ``location`` the question is about the whole installation, without ``target`` about a whole location.
    ``worker.run`` (inputs, start, reports, logs of a run) belongs to the worker token of that run alone.
    """
    if permission == "worker.run":
        return principal.kind == "worker" and run_id is not None and principal.scope.run_id == run_id
    if principal.kind == "operator":
        return True
    return permission in _granted(principal) and _reaches(principal.scope, location, target)


def require(
    principal: Principal,
    permission: Permission,
    location: str | None = None,
    target: str | None = None,
    *,
    run_id: str | None = None,
) -> None:
    """Raise ``NotFound`` for what lies outside the caller's scope, ``Forbidden`` for what lies inside without the right."""
    if allows(principal, permission, location, target, run_id=run_id):
        return
    if permission == "worker.run" and principal.kind == "worker":
        raise NotFound("the token belongs to another run")
    if location is not None and principal.kind != "operator" and not _reaches(principal.scope, location, target):
        raise NotFound
    raise Forbidden(
        f"this needs {permission}, which a token of the kind {principal.kind!r} with this scope does not have"
    )


def narrowed(principal: Principal, location: str | None, target: str | None) -> tuple[str | None, str | None]:
    """The filter of a list, narrowed to what the caller's token reaches; what it names itself is kept as it is."""
    scope = principal.scope
    if principal.kind == "operator":
        return location, target
    return location or scope.location, target or scope.target


def _granted(principal: Principal) -> frozenset[Permission]:
    if principal.kind != "location":
        return frozenset()
    return frozenset().union(*(_OF_GRANT[grant] for grant in principal.scope.permissions))


def _reaches(scope: TokenScope, location: str | None, target: str | None) -> bool:
    return location is not None and scope.location == location and (scope.target is None or scope.target == target)
