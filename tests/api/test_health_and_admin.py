"""Health, readiness, and what an operator sets up."""

from __future__ import annotations

import psycopg
import pytest

from tests.api.site import HERE, LOCATION, RUN, TARGET, Site, publication
from tests.postgres import StoreAddress

PLACE = f"/v1/admin/locations/{LOCATION}/targets/{TARGET}"


def test_health_needs_nothing(site: Site) -> None:
    answer = site.caller().get("/v1/health")
    assert answer.status == 200
    assert answer.body.keys() == {"status", "release", "tzdata"}


def test_ready_when_store_and_queues_answer(site: Site) -> None:
    answer = site.caller().get("/v1/ready")
    assert (answer.status, answer.body) == (200, {"status": "ready", "scheduler": "ok", "late_shards": []})


def test_not_ready_without_its_queues(site: Site) -> None:
    answer = site.without_queues().caller().get("/v1/ready")
    assert (answer.status, answer.body["code"], "retry-after" in answer.headers) == (503, "unavailable", True)


def test_not_ready_with_another_schema(site: Site, store: StoreAddress) -> None:
    with psycopg.connect(store.superuser_url, autocommit=True) as connection:
        connection.execute("UPDATE store_meta SET value = 'other' WHERE key = 'schema_checksum'")
    answer = site.caller().get("/v1/ready")
    assert (answer.status, answer.body["code"]) == (503, "unavailable")


def test_a_location_is_added_once(site: Site) -> None:
    first = site.operator.post("/v1/admin/locations", {"location": LOCATION})
    again = site.operator.post("/v1/admin/locations", {"location": LOCATION})
    assert (first.status, first.body["added"]) == (201, True)
    assert (again.status, again.body["added"]) == (200, False)


@pytest.mark.parametrize("location", ["", "Cafe", "a b", "x" * 101, "a/b", "ä"])
def test_a_location_s_name_is_plain(site: Site, location: str) -> None:
    answer = site.operator.post("/v1/admin/locations", {"location": location})
    assert (answer.status, answer.body["errors"][0]["field"]) == (422, "location")


def test_a_target_is_set_as_a_whole(site: Site) -> None:
    site.operator.post("/v1/admin/locations", {"location": LOCATION})
    first = site.operator.json("PUT", PLACE, {"single_writer": True, "environment": {"DBT_USER": "secret:user"}})
    assert first.status == 200
    assert first.body["settle_seconds"] == 0
    assert site.operator.json("PUT", PLACE, {}).body["environment"] == {}
    (shown,) = site.operator.get("/v1/admin/locations").body["items"]
    assert [target["target"] for target in shown["targets"]] == [TARGET]


def test_a_target_needs_its_location(site: Site) -> None:
    assert site.operator.json("PUT", PLACE, {}).status == 404


def test_a_target_with_live_claims_keeps_its_warehouse(site: Site) -> None:
    site.publish()
    site.claimed()
    answer = site.operator.json("PUT", PLACE, {"warehouse": "other", "single_writer": True})
    assert (answer.status, answer.body["code"]) == (409, "has_live_claims")


def test_a_disabled_location_takes_no_publication(site: Site) -> None:
    site.publish()
    assert site.operator.json("PATCH", f"/v1/admin/locations/{LOCATION}", {"disabled": True}).body["disabled"] is True
    body = publication("pub_00000000000000000000000000000002", tool_version="2")
    answer = site.operator.post(f"{HERE}/snapshots", body)
    assert (answer.status, answer.body["code"]) == (409, "location_disabled")
    assert site.operator.json("PATCH", f"/v1/admin/locations/{LOCATION}", {"disabled": False}).status == 200
    assert site.operator.post(f"{HERE}/snapshots", body).status == 201


def test_a_token_is_shown_once_and_ends_at_once(site: Site) -> None:
    site.operator.post("/v1/admin/locations", {"location": LOCATION})
    scope = {"location": LOCATION, "permissions": ["publish"]}
    issued = site.operator.post("/v1/admin/tokens", {"kind": "location", "scope": scope})
    assert issued.status == 201
    secret, token_id = issued.body["secret"], issued.body["token_id"]
    assert site.caller(secret).get("/v1/runs").status == 200
    listed = site.operator.get("/v1/admin/tokens")
    assert token_id in listed.text
    assert secret not in listed.text
    ended = site.operator.send("DELETE", f"/v1/admin/tokens/{token_id}")
    assert (ended.status, ended.body["revoked"]) == (200, True)
    assert site.caller(secret).get("/v1/runs").body["code"] == "token_revoked"
    assert site.operator.send("DELETE", f"/v1/admin/tokens/{token_id}").body["revoked"] is False


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "worker"},
        {"kind": "location"},
        {"kind": "operator", "lifetime_seconds": 1},
        {"kind": "operator", "lifetime_seconds": 366 * 24 * 3_600},
        {"kind": "location", "scope": {"location": LOCATION, "permissions": ["administer"]}},
    ],
)
def test_a_token_that_cannot_be_is_refused(site: Site, body: dict[str, object]) -> None:
    assert site.operator.post("/v1/admin/tokens", body).status == 422


def test_a_token_for_nowhere_is_not_found(site: Site) -> None:
    body = {"kind": "location", "scope": {"location": "nowhere", "permissions": ["work"]}}
    assert site.operator.post("/v1/admin/tokens", body).status == 404


def test_an_unknown_token_is_not_found(site: Site) -> None:
    assert site.operator.send("DELETE", f"/v1/admin/tokens/tok_{'0' * 32}").status == 404
    assert site.operator.send("DELETE", f"/v1/admin/tokens/{RUN}").status == 422
