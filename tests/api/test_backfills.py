"""Starting backfills, looking at them, pausing, resuming and cancelling them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.site import BACKFILL, HERE, JOB, LOCATION, RUN, TARGET, Answered, Site, backfill

FIRST = "2024-02-29T03:00:00.000000Z"
OTHER = BACKFILL.replace("1", "2")


@pytest.fixture
def published(site: Site) -> Site:
    site.publish()
    site.woken()
    return site


def start(site: Site, backfill_id: str = BACKFILL, **changes: Any) -> Answered:
    return site.operator.post("/v1/backfills", backfill(backfill_id, **changes))


def show(site: Site, part: str = "") -> Answered:
    return site.operator.get(f"/v1/backfills/{BACKFILL}{part}")


def change(site: Site, what: str) -> Answered:
    return site.operator.send("POST", f"/v1/backfills/{BACKFILL}/{what}")


def test_a_backfill_is_stored_once_and_a_repeat_gives_it_again(published: Site) -> None:
    first = start(published)
    assert first.status == 201
    assert first.body["from"] == "2024-01-01T00:00:00.000000Z"
    assert (first.body["to"], first.body["items"], first.body["max_parallel"]) == ("2025-01-01T00:00:00.000000Z", 1, 2)
    assert (first.body["state"], first.body["waiting"], first.body["counts"]) == ("active", 1, {})
    assert first.body["schedule"] == "orders/schedule"
    assert first.body["requested_by"].startswith("operator:")
    assert published.woken() == [{"v": 1, "shard": 0, "kind": "wake"}]
    again = start(published)
    assert (again.status, again.body) == (200, first.body)
    assert published.woken() == []
    assert start(published, max_parallel=3).body["code"] == "id_reused"


def test_its_items_become_runs_that_say_so(published: Site) -> None:
    start(published)
    published.services.scheduler.run_pass(0)
    (item,) = show(published, "/items").body["items"]
    assert (item["item"], item["state"], item["retry_number"]) == (FIRST, "claimed", 0)
    run = published.operator.get(f"/v1/runs/{item['run_id']}").body
    assert (run["origin"], run["backfill_id"], run["scheduled_for"]) == ("backfill", BACKFILL, FIRST)
    body = show(published).body
    assert (body["waiting"], body["counts"], body["waits_for"]) == (0, {"claimed": 1}, [])


def test_what_it_waits_for_is_told(published: Site) -> None:
    published.queued(RUN)
    published.services.scheduler.run_pass(0)
    start(published)
    (wait,) = show(published).body["waits_for"]
    assert (wait["code"], wait["detail"]["active"]) == ("job_concurrency", [RUN])


def test_a_plan_shows_the_items_and_stores_nothing(published: Site) -> None:
    body = backfill()
    del body["backfill_id"]
    answer = published.operator.post("/v1/backfills/plan", body)
    assert answer.status == 200
    assert answer.body["items"] == [{"item": FIRST, "scheduled_for": FIRST, "inputs": {}}]
    assert published.operator.get("/v1/backfills").body == {"items": [], "next_cursor": None}


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [
        ({"from": "2025-01-01", "to": "2026-01-01"}, 422, "to"),
        ({"from": "soon"}, 422, "from"),
        ({"max_parallel": 0}, 422, "max_parallel"),
        ({"max_parallel": 51}, 422, "max_parallel"),
        ({"over": "days"}, 422, "over"),
        ({"backfill_id": "short"}, 422, "backfill_id"),
        ({"over": "partitions", "step": "day"}, 422, "start_input"),
        ({"inputs": {"day": "2026-01-01"}}, 422, "inputs.day"),
        ({"job": "nothing"}, 404, None),
    ],
)
def test_a_wrong_field_is_named(published: Site, changes: dict[str, Any], status: int, field: str | None) -> None:
    answer = published.operator.post("/v1/backfills", backfill() | changes)
    assert answer.status == status, answer.text
    if field is not None:
        assert [one["field"] for one in answer.body["errors"]] == [field]


def test_pausing_resuming_and_cancelling(published: Site) -> None:
    start(published)
    assert change(published, "pause").body["state"] == "paused"
    assert change(published, "pause").status == 200
    assert published.services.scheduler.run_pass(0).claimed == []
    assert change(published, "resume").body["state"] == "active"
    cancelled = change(published, "cancel")
    assert (cancelled.status, cancelled.body["state"]) == (200, "cancelled")
    assert change(published, "cancel").status == 200
    for what in ("pause", "resume"):
        answer = change(published, what)
        assert (answer.status, answer.body["code"]) == (409, "already_finished")


def test_a_cancel_whose_run_was_accepted_is_answered_with_202(published: Site) -> None:
    start(published)
    published.services.scheduler.run_pass(0)
    (item,) = show(published, "/items").body["items"]
    claim = published.services.runs.run(item["run_id"]).claim
    assert claim is not None
    published.open_boot()
    body = {
        "claim_id": claim.claim_id,
        "boot_id": "boot_0000000000000001",
        "boot_partition": 0,
        "worker_kind": "container",
    }
    assert published.holder("work").post(f"/v1/worker/runs/{item['run_id']}/accept", body).status == 200
    answer = change(published, "cancel")
    assert (answer.status, answer.body["state"]) == (202, "cancelling")
    assert published.operator.get(f"/v1/runs/{item['run_id']}").body["cancel_requested_at"] is not None


def test_lists_are_paged_and_filtered(published: Site) -> None:
    for backfill_id in (BACKFILL, OTHER):
        start(published, backfill_id)
    change(published, "pause")

    def shown(query: str) -> list[str]:
        return [one["backfill_id"] for one in published.operator.get(f"/v1/backfills{query}").body["items"]]

    first = published.operator.get("/v1/backfills?limit=1").body
    assert [one["backfill_id"] for one in first["items"]] == [OTHER]
    assert shown(f"?limit=1&cursor={first['next_cursor']}") == [BACKFILL]
    assert shown("?state=paused") == [BACKFILL]
    assert shown(f"?location={LOCATION}&target={TARGET}&job={JOB}") == [OTHER, BACKFILL]
    assert shown("?job=other") == []
    publisher = published.holder("publish", location="bakery")
    assert publisher.get("/v1/backfills").body["items"] == []


@pytest.mark.parametrize("part", ["", "/items"])
def test_a_backfill_that_is_not_there_is_not_found(site: Site, part: str) -> None:
    answer = show(site, part)
    assert (answer.status, answer.body["code"]) == (404, "not_found")


def test_the_job_s_own_runs_are_not_among_its_items(published: Site) -> None:
    start(published)
    published.operator.post(f"{HERE}/jobs/{JOB}/runs", {"run_id": RUN})
    published.services.scheduler.run_pass(0)
    assert show(published, "/items").body["items"] == []
    assert show(published).body["waits_for"][0]["code"] == "job_concurrency"
