"""Publishing, and what was published: snapshots, jobs, triggers."""

from __future__ import annotations

import pytest

from chalicelib.kernel.canonical import sha256_text
from tests.api.site import HERE, JOB, TRIGGER, Site, index, publication

NAME = TRIGGER.replace("/", "%2F")
SWITCH = {"enabled": False, "request_id": "req_0000000000000001"}


def test_publishing_again_changes_nothing(site: Site) -> None:
    first = site.publish()
    assert first.status == 201
    assert first.body["changed"] is True
    assert site.operator.post(f"{HERE}/snapshots", publication()).body == first.body
    again = site.operator.post(f"{HERE}/snapshots", publication("pub_00000000000000000000000000000002"))
    assert (again.status, again.body["changed"]) == (200, False)


def test_publishing_wakes_the_scheduler(site: Site) -> None:
    site.publish()
    assert {"v": 1, "shard": 0, "kind": "wake"} in site.woken()


def test_a_publication_id_cannot_be_used_for_something_else(site: Site) -> None:
    site.publish()
    answer = site.operator.post(f"{HERE}/snapshots", publication(tool_version="2"))
    assert (answer.status, answer.body["code"]) == (409, "id_reused")


def test_another_current_snapshot_than_expected_is_refused(site: Site) -> None:
    site.publish()
    body = publication("pub_00000000000000000000000000000002", tool_version="2") | {"expect_current": "d" * 64}
    answer = site.operator.post(f"{HERE}/snapshots", body)
    assert (answer.status, answer.body["code"]) == (409, "snapshot_not_current")


def test_an_index_that_has_not_its_hash_is_refused(site: Site) -> None:
    site.publish()
    body = publication("pub_00000000000000000000000000000002") | {"snapshot_id": "d" * 64}
    assert site.operator.post(f"{HERE}/snapshots", body).status == 422


def test_a_target_that_is_not_there_is_not_found(site: Site) -> None:
    answer = site.operator.post("/v1/locations/nowhere/targets/dev/snapshots", publication())
    assert (answer.status, answer.body["code"]) == (404, "not_found")


def test_a_location_s_token_publishes_to_its_location(site: Site) -> None:
    site.publish()
    publisher = site.holder("publish")
    body = publication("pub_00000000000000000000000000000002", tool_version="2")
    assert publisher.post(f"{HERE}/snapshots", body).status == 201
    assert publisher.get(f"{HERE}/snapshots/current").body["tool_version"] == "2"


def test_a_snapshot_shows_itself_its_documents_and_its_nodes(site: Site) -> None:
    text = "select 1"
    documents = [{"key": "models/orders.sql", "sha256": sha256_text(text), "size": len(text)}]
    site.publish()
    body = publication("pub_00000000000000000000000000000002", documents=documents)
    body["documents"] = {sha256_text(text): text}
    assert site.operator.post(f"{HERE}/snapshots", body).status == 201
    snapshot_id = index(documents=documents).snapshot_id()
    get = site.operator.get
    assert get(f"/v1/snapshots/{snapshot_id}").body["current"] is True
    assert get(f"/v1/snapshots/{snapshot_id}/documents/models%2Forders.sql").body["text"] == text
    assert get(f"/v1/snapshots/{snapshot_id}/documents/nothing").status == 404
    assert [node["node"] for node in get(f"/v1/snapshots/{snapshot_id}/nodes").body["items"]] == ["orders"]
    listed = get(f"{HERE}/snapshots?limit=1").body
    assert listed["items"][0]["snapshot_id"] == snapshot_id
    rest = get(f"{HERE}/snapshots?limit=1&cursor={listed['next_cursor']}").body
    assert [item["current"] for item in rest["items"]] == [False]


def test_uploads_name_an_address_for_what_is_missing(site: Site) -> None:
    site.publish()
    body = {"location": "cafe", "target": "dev", "sha256s": ["d" * 64]}
    (upload,) = site.operator.post("/v1/snapshots/uploads", body).body["uploads"]
    assert upload["sha256"] == "d" * 64
    assert upload["url"].startswith("http")


def test_jobs_and_triggers_are_those_of_the_current_snapshot(site: Site) -> None:
    site.publish()
    get = site.operator.get
    assert [job["job"] for job in get(f"{HERE}/jobs").body["items"]] == [JOB]
    assert get(f"{HERE}/jobs/{JOB}").body["definition"]["timeout_seconds"] == 60
    assert get(f"{HERE}/jobs/nothing").status == 404
    (trigger,) = get(f"{HERE}/triggers").body["items"]
    assert trigger["name"] == TRIGGER
    assert trigger["next_at"].endswith("-02-29T03:00:00.000000Z")
    assert get(f"{HERE}/triggers/{NAME}").body == trigger
    assert get(f"{HERE}/triggers/{NAME}/ticks").body == {"items": [], "next_cursor": None}
    assert get(f"{HERE}/triggers/orders%2Fnothing").status == 404


def test_a_trigger_is_switched_once_per_request_id(site: Site) -> None:
    site.publish()
    site.woken()
    off = site.operator.json("PATCH", f"{HERE}/triggers/{NAME}", SWITCH)
    assert (off.status, off.body["enabled"], off.body["next_at"]) == (200, False, None)
    assert site.woken() == []
    assert site.operator.json("PATCH", f"{HERE}/triggers/{NAME}", SWITCH).body == off.body
    reused = site.operator.json("PATCH", f"{HERE}/triggers/{NAME}", SWITCH | {"enabled": True})
    assert (reused.status, reused.body["code"]) == (409, "id_reused")
    on = site.operator.json("PATCH", f"{HERE}/triggers/{NAME}", {"enabled": True, "request_id": "req_0000000000000002"})
    assert (on.status, on.body["enabled"]) == (200, True)
    assert site.woken() == [{"v": 1, "shard": 0, "kind": "wake"}]


def test_a_published_schedule_is_previewed(site: Site) -> None:
    site.publish()
    shown = site.operator.get(f"{HERE}/triggers/{NAME}/preview?after=2026-01-01T00:00:00Z&count=2").body
    assert [each["scheduled_for"][:10] for each in shown["occurrences"]] == ["2028-02-29", "2032-02-29"]


def test_any_schedule_is_previewed(site: Site) -> None:
    body = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "after": "2026-03-28T00:00:00Z", "count": 2}
    shown = site.operator.post("/v1/schedules/preview", body)
    assert shown.status == 200
    assert len(shown.body["occurrences"]) == 2
    assert site.holder("publish").post("/v1/schedules/preview", body).body == shown.body


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cron": "61 * * * *"}, "invalid_schedule"),
        ({"timezone": "Europe/Berlinn"}, "invalid_schedule"),
        ({"count": 0}, "invalid_request"),
        ({"after": "2026-01-01"}, "invalid_request"),
    ],
)
def test_a_schedule_that_is_wrong_is_explained(site: Site, changes: dict[str, object], code: str) -> None:
    answer = site.operator.post("/v1/schedules/preview", {"cron": "0 3 * * *", "timezone": "UTC", **changes})
    assert (answer.status, answer.body["code"]) == (422, code)
    assert answer.body["errors"]
