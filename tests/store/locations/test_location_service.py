from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from pydantic import ValidationError

from chalicelib.database import Database
from chalicelib.kernel.errors import HasLiveClaims, InvalidRequest, NotFound, TidemillError
from chalicelib.kernel.limits import TARGETS_PER_LOCATION
from chalicelib.locations import LocationService, TargetSettings, TargetView
from tests.doubles import lowering_over


@pytest.fixture
def service(database: Database) -> LocationService:
    made = LocationService(database, lowering_over(database))
    made.add("cafe")
    return made


def view_of(service: LocationService, target: str) -> TargetView:
    return next(view for location in service.list().items for view in location.targets if view.target == target)


def hold_write_claim(owner_url: str, target: str, release: str = "NULL") -> None:
    """A run of ``cafe/<target>`` that holds a write claim until ``release`` (an SQL interval from now, or NULL)."""
    with psycopg.connect(owner_url) as connection:
        connection.execute(
            "INSERT INTO snapshots (snapshot_id, location, target, tool, tool_version, baseline_hash, git_dirty, "
            "git_authors, created_at) VALUES ('s', 'cafe', %s, 'command', '1', 'b', false, '[]', clock_timestamp())",
            [target],
        )
        connection.execute(
            "INSERT INTO runs (run_id, location, target, job, shard, snapshot_id, inputs_json, origin, status, created_at) "
            "VALUES ('run_1', 'cafe', %s, 'orders', 0, 's', '{}', 'manual', 'running', clock_timestamp())",
            [target],
        )
        connection.execute(
            "INSERT INTO write_claims VALUES ('w', 'main.a', 'run_1', clock_timestamp() + %s::interval)",
            [None if release == "NULL" else release],
        )


def test_adding_again_leaves_the_location_as_it_is(service: LocationService) -> None:
    service.set_disabled("cafe", disabled=True)
    assert service.add("cafe") is False
    assert service.add("bar") is True
    assert [(item.location, item.disabled) for item in service.list().items] == [("bar", False), ("cafe", True)]


def test_enabling_again(service: LocationService) -> None:
    service.set_disabled("cafe", disabled=True)
    service.set_disabled("cafe", disabled=False)
    assert [item.disabled for item in service.list().items] == [False]


@pytest.mark.parametrize(("single_writer", "settle"), [(False, 900), (True, 0)])
def test_defaults_of_a_target(service: LocationService, single_writer: bool, settle: int) -> None:
    view = service.set_target("cafe", "prod", TargetSettings(single_writer=single_writer))
    assert (view.warehouse, view.settle_seconds, view.case_rule) == ("cafe/prod", settle, "lower")
    assert view_of(service, "prod") == view


def test_settings_are_replaced_as_a_whole(service: LocationService) -> None:
    service.set_target(
        "cafe", "prod", TargetSettings(settle_seconds=5, case_rule="upper", environment={"A": "1", "KEY": "secret:key"})
    )
    assert view_of(service, "prod").environment == {"A": "1", "KEY": "secret:key"}
    service.set_target("cafe", "prod", TargetSettings(environment={"B": "2"}))
    shown = view_of(service, "prod")
    assert (shown.settle_seconds, shown.case_rule, shown.environment) == (900, "lower", {"B": "2"})


@pytest.mark.parametrize(
    "settings",
    [
        {"environment": {"1A": "x"}},
        {"environment": {"A-B": "x"}},
        {"environment": {"TIDEMILL_TOKEN": "x"}},
        {"environment": {"tidemill_token": "x"}},
        {"environment": {"A": "a\x00b"}},
        {"environment": {"A": "secret:"}},
        {"environment": {"A": "x" * 4_097}},
        {"environment": {f"A{number}": "x" for number in range(101)}},
        {"settle_seconds": -1},
        {"settle_seconds": 86_401},
        {"warehouse": ""},
        {"warehouse": "two words"},
        {"case_rule": "mixed"},
        {"unknown": 1},
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TargetSettings.model_validate(settings)


@pytest.mark.parametrize("change", [{"single_writer": True}, {"warehouse": "other"}])
@pytest.mark.parametrize("release", ["NULL", "1 hour"])
def test_target_with_live_claims_keeps_its_place(
    service: LocationService, owner_url: str, change: dict[str, Any], release: str
) -> None:
    service.set_target("cafe", "prod", TargetSettings())
    hold_write_claim(owner_url, "prod", release)
    before = view_of(service, "prod")
    with pytest.raises(HasLiveClaims) as refusal:
        service.set_target("cafe", "prod", TargetSettings.model_validate(change))
    assert [wrong.field for wrong in refusal.value.fields] == list(change)
    assert view_of(service, "prod") == before
    service.set_target("cafe", "prod", TargetSettings(settle_seconds=7, environment={"A": "1"}))
    assert view_of(service, "prod").settle_seconds == 7


def test_claims_that_have_settled_or_are_of_another_target_do_not_count(
    service: LocationService, owner_url: str
) -> None:
    for target in ("prod", "dev"):
        service.set_target("cafe", target, TargetSettings())
    hold_write_claim(owner_url, "prod", "-1 second")
    assert service.set_target("cafe", "prod", TargetSettings(single_writer=True)).single_writer
    assert service.set_target("cafe", "dev", TargetSettings(warehouse="other")).warehouse == "other"


@pytest.mark.parametrize("differing", [{"single_writer": True}, {"case_rule": "upper"}])
def test_targets_of_one_warehouse_must_agree(service: LocationService, differing: dict[str, Any]) -> None:
    service.set_target("cafe", "prod", TargetSettings(warehouse="shared"))
    with pytest.raises(InvalidRequest, match="cafe/prod has") as refusal:
        service.set_target("cafe", "dev", TargetSettings.model_validate({"warehouse": "shared", **differing}))
    assert [wrong.field for wrong in refusal.value.fields] == list(differing)
    assert [view.target for view in service.list().items[0].targets] == ["prod"]
    service.set_target("cafe", "dev", TargetSettings.model_validate(differing))
    with pytest.raises(InvalidRequest):
        service.set_target("cafe", "dev", TargetSettings.model_validate({"warehouse": "shared", **differing}))


def test_only_target_of_a_warehouse_may_change(service: LocationService) -> None:
    service.set_target("cafe", "prod", TargetSettings(warehouse="alone"))
    assert service.set_target("cafe", "prod", TargetSettings(warehouse="alone", single_writer=True)).single_writer


def test_two_new_targets_at_once_cannot_disagree(service: LocationService) -> None:
    def put(number: int) -> bool:
        settings = TargetSettings(warehouse="shared", single_writer=number % 2 == 0)
        try:
            service.set_target("cafe", f"target_{number}", settings)
        except InvalidRequest:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        accepted = list(pool.map(put, range(8)))
    assert sum(accepted) == 4
    assert len({view.single_writer for view in service.list().items[0].targets}) == 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: s.set_disabled("bar", disabled=True), NotFound, "tidemill admin location add"),
        (lambda s: s.set_target("bar", "prod", TargetSettings()), NotFound, "tidemill admin location add"),
        (lambda s: s.add("Big Café"), InvalidRequest, "location"),
        (lambda s: s.add("a\n"), InvalidRequest, "location"),
        (lambda s: s.set_target("cafe", "x" * 101, TargetSettings()), InvalidRequest, "target"),
    ],
)
def test_wrong_names_are_refused(service: LocationService, call: Any, error: type[TidemillError], message: str) -> None:
    with pytest.raises(error, match=message):
        call(service)


def test_number_of_targets_is_bounded(service: LocationService, owner_url: str) -> None:
    with psycopg.connect(owner_url) as connection:
        connection.execute(
            "INSERT INTO targets SELECT 'cafe', 't' || n, 'w' || n, 0, false, 'lower', '{}', NULL "
            "FROM generate_series(1, %s) AS n",
            [TARGETS_PER_LOCATION],
        )
    with pytest.raises(InvalidRequest, match="at most"):
        service.set_target("cafe", "one_more", TargetSettings())
    assert service.set_target("cafe", "t1", TargetSettings()).warehouse == "cafe/t1"


def test_list_pages_by_name_with_targets(service: LocationService) -> None:
    for name in ("bar", "diner", "eatery"):
        service.add(name)
        service.set_target(name, "prod", TargetSettings())
    first = service.list(limit=3)
    second = service.list(limit=3, cursor=first.next_cursor)
    assert [item.location for item in (*first.items, *second.items)] == ["bar", "cafe", "diner", "eatery"]
    assert [len(item.targets) for item in (*first.items, *second.items)] == [1, 0, 1, 1]
    assert second.next_cursor is None
