"""Pools over HTTP: read by everybody who reads runs, changed under a condition by an operator."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.site import Answered, Site

POOL = "/v1/pools/default"


def put(site: Site, body: Any, path: str = POOL, **conditions: str) -> Answered:
    return site.operator.send("PUT", path, json.dumps(body).encode(), content_type="application/json", **conditions)


def etag(site: Site, name: str = "default") -> str:
    return str(next(pool["etag"] for pool in site.operator.get("/v1/pools").body["items"] if pool["pool"] == name))


def test_pools_are_listed_with_what_is_in_use(site: Site) -> None:
    (pool,) = site.operator.get("/v1/pools").body["items"]
    assert pool | {"etag": ""} == {"pool": "default", "limit": 10, "used": 0, "free": 10, "holders": [], "etag": ""}
    assert site.operator.get("/v1/pools?limit=1").body["next_cursor"] is None


def test_a_limit_is_changed_with_the_tag_that_was_read(site: Site) -> None:
    answer = put(site, {"limit": 4}, if_match=etag(site))
    assert (answer.status, answer.body["limit"]) == (200, 4)
    assert answer.headers["etag"] == answer.body["etag"] == etag(site)
    assert put(site, {"limit": 5}, if_match=f'"other", {etag(site)}').body["limit"] == 5


def test_a_change_without_a_condition_is_refused(site: Site) -> None:
    answer = put(site, {"limit": 4})
    assert (answer.status, answer.body["code"]) == (428, "precondition_required")
    assert "If-Match" in answer.body["detail"]


@pytest.mark.parametrize("condition", [{"if_match": '"other"'}, {"if_match": "nonsense"}, {"if_none_match": "*"}])
def test_a_change_of_what_was_changed_is_refused(site: Site, condition: dict[str, str]) -> None:
    answer = put(site, {"limit": 4}, **condition)
    assert (answer.status, answer.body["code"]) == (412, "precondition_failed")
    assert "/v1/pools" in answer.body["detail"]
    assert etag(site) == put(site, {"limit": 10}, if_match=etag(site)).body["etag"]


def test_a_weak_tag_is_no_match(site: Site) -> None:
    assert put(site, {"limit": 4}, if_match=f"W/{etag(site)}").status == 412


def test_a_pool_is_made(site: Site) -> None:
    first = put(site, {"limit": 2}, "/v1/pools/heavy", if_none_match="*")
    again = put(site, {"limit": 2}, "/v1/pools/heavy", if_none_match="*")
    assert (first.status, again.status, first.body) == (201, 200, again.body)
    assert put(site, {"limit": 2}, "/v1/pools/absent", if_match="*").status == 412


def test_a_worker_kind_s_pool_is_no_document(site: Site) -> None:
    answer = put(site, {"limit": 2}, "/v1/pools/worker%3Alambda", if_none_match="*")
    assert (answer.status, answer.body["errors"][0]["field"]) == (422, "pool")
    assert "TIDEMILL_LAMBDA_CONCURRENCY" in answer.body["detail"]


@pytest.mark.parametrize("limit", [-1, 1_000_001, "4", 2.5, None, True])
def test_a_limit_is_a_whole_number(site: Site, limit: object) -> None:
    answer = put(site, {"limit": limit}, if_match=etag(site))
    assert (answer.status, answer.body["errors"][0]["field"]) == (422, "limit")


def test_a_location_s_token_sees_use_and_its_own_holders(site: Site) -> None:
    site.publish()
    site.claimed()

    def shown(location: str) -> tuple[int, list[str]]:
        pools = site.holder("publish", location=location).get("/v1/pools").body["items"]
        (found,) = (pool for pool in pools if pool["pool"] == "worker:container")
        return found["used"], found["holders"]

    assert shown("cafe") == (1, ["run_00000000000000000000000000000001"])
    assert shown("bakery") == (1, [])
