from __future__ import annotations

from typing import get_args

import pytest

from chalicelib.access import Permission, Principal, TokenScope, allows, narrowed, require
from chalicelib.kernel.errors import Forbidden, NotFound

ALL: tuple[Permission, ...] = get_args(Permission)


def holder(kind: str, **scope: object) -> Principal:
    return Principal(kind=kind, token_id="tok_1", scope=TokenScope.model_validate(scope), name=f"{kind}:tok_1")  # type: ignore[arg-type]  # parametrized text


OPERATOR = holder("operator")
PUBLISHER = holder("location", location="berlin", target="prod", permissions=["publish"])
WORKER_OF_PLACE = holder("location", location="berlin", permissions=["work"])
WORKER = holder("worker", location="berlin", target="prod", run_id="run_1", claim_id="clm_1")


@pytest.mark.parametrize("permission", ALL)
def test_operator_may_do_everything_but_the_work_of_a_claim(permission: Permission) -> None:
    assert allows(OPERATOR, permission, "berlin", "prod", run_id="run_1") == (permission != "worker.run")
    assert allows(OPERATOR, permission) == (permission != "worker.run")


@pytest.mark.parametrize(
    ("principal", "granted"),
    [
        (PUBLISHER, {"snapshots.publish", "snapshots.read", "triggers.read", "runs.read"}),
        (WORKER_OF_PLACE, {"worker.accept", "worker.ended"}),
        (holder("location", location="berlin", permissions=["roles", "metadata"]), set()),
        (WORKER, {"worker.run"}),
    ],
)
def test_what_each_token_may_do_in_its_scope(principal: Principal, granted: set[str]) -> None:
    assert {name for name in ALL if allows(principal, name, "berlin", "prod", run_id="run_1")} == granted


@pytest.mark.parametrize("place", [("paris", "prod"), ("berlin", "dev"), ("berlin", None), (None, None)])
def test_publisher_of_one_target_does_nothing_elsewhere(place: tuple[str | None, str | None]) -> None:
    assert not any(allows(PUBLISHER, name, *place, run_id="run_1") for name in ALL)


def test_token_without_target_reaches_every_target_of_its_location() -> None:
    assert allows(WORKER_OF_PLACE, "worker.accept", "berlin", "dev")
    assert not allows(WORKER_OF_PLACE, "worker.accept", "paris", "dev")


def test_worker_token_reaches_only_its_run() -> None:
    assert not allows(WORKER, "worker.run", "berlin", "prod", run_id="run_2")
    assert not allows(WORKER, "worker.run", "berlin", "prod")
    with pytest.raises(NotFound):
        require(WORKER, "worker.run", run_id="run_2")


def test_outside_the_scope_there_is_nothing_and_inside_it_is_refused() -> None:
    with pytest.raises(NotFound):
        require(PUBLISHER, "runs.read", "paris", "prod")
    with pytest.raises(Forbidden, match=r"runs\.cancel"):
        require(PUBLISHER, "runs.cancel", "berlin", "prod")
    with pytest.raises(Forbidden):
        require(PUBLISHER, "administer")
    require(PUBLISHER, "runs.read", "berlin", "prod")


def test_lists_are_narrowed_to_the_scope() -> None:
    assert narrowed(OPERATOR, None, None) == (None, None)
    assert narrowed(PUBLISHER, None, None) == ("berlin", "prod")
    assert narrowed(PUBLISHER, "paris", None) == ("paris", "prod")
