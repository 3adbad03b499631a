"""Asking for runs, looking at them, cancelling them."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.kernel.paging import encode_cursor
from tests.api.site import BOOT, HERE, JOB, LOCATION, RUN, TARGET, Answered, Site

CANCEL = {"cancel_id": "can_0000000000000001", "reason": "not needed"}
END = {"report_key": "rep_0000000000000001", "kind": "terminal", "outcome": {"state": "succeeded", "settled": True}}


@pytest.fixture
def published(site: Site) -> Site:
    site.publish()
    site.woken()
    return site


def request(site: Site, run_id: str = RUN, **fields: Any) -> Answered:
    return site.operator.post(f"{HERE}/jobs/{JOB}/runs", {"run_id": run_id, **fields})


def test_a_run_is_queued_once_and_a_repeat_gives_it_again(published: Site) -> None:
    first = request(published)
    assert first.status == 201
    assert first.body["reused"] is False
    assert first.body["run"]["run_id"] == RUN
    assert first.body["run"]["state"] == "queued"
    assert first.body["run"]["requested_by"].startswith("operator:")
    again = request(published)
    assert again.status == 200
    assert again.body == {"run": first.body["run"], "reused": True}


def test_a_run_id_cannot_be_used_for_something_else(published: Site) -> None:
    request(published)
    answer = published.operator.post(f"{HERE}/jobs/{JOB}/runs", {"run_id": RUN, "inputs": {"day": "2026-01-01"}})
    assert answer.status in {409, 422}
    assert answer.body["code"] in {"id_reused", "invalid_inputs"}


def test_a_job_that_is_not_published_is_not_found(published: Site) -> None:
    answer = published.operator.post(f"{HERE}/jobs/nothing/runs", {"run_id": RUN})
    assert (answer.status, answer.body["code"]) == (404, "not_found")


def test_a_request_wakes_the_scheduler(published: Site) -> None:
    request(published)
    assert published.woken() == [{"v": 1, "shard": 0, "kind": "wake"}]


def test_a_scheduler_that_cannot_be_woken_fails_no_request(published: Site, caplog: pytest.LogCaptureFixture) -> None:
    assert request(published.without_queues()).status == 201
    assert "was not woken" in caplog.text


def test_a_run_shows_itself_its_events_and_its_reasons(published: Site) -> None:
    request(published)
    get = published.operator.get
    assert get(f"/v1/runs/{RUN}").body["job"] == JOB
    assert [event["kind"] for event in get(f"/v1/runs/{RUN}/events").body["items"]] == ["queued"]
    assert get(f"/v1/runs/{RUN}/nodes").body == {"items": [], "next_cursor": None}
    assert get(f"/v1/runs/{RUN}/why").body["state"] == "queued"
    assert get(f"/v1/runs/{RUN}/logs").body == {"items": []}


@pytest.mark.parametrize("part", ["", "/nodes", "/events", "/why", "/logs"])
def test_a_run_that_is_not_there_is_not_found(site: Site, part: str) -> None:
    answer = site.operator.get(f"/v1/runs/{RUN}{part}")
    assert (answer.status, answer.body["code"]) == (404, "not_found")


def ids(answer: Answered) -> list[str]:
    return [run["run_id"] for run in answer.body["items"]]


def test_a_list_is_paged_newest_first(published: Site) -> None:
    made = [RUN[:-1] + str(number) for number in range(5)]
    for run_id in made:
        request(published, run_id)
    first = published.operator.get("/v1/runs?limit=2")
    second = published.operator.get(f"/v1/runs?limit=2&cursor={first.body['next_cursor']}")
    third = published.operator.get(f"/v1/runs?limit=2&cursor={second.body['next_cursor']}")
    assert ids(first) + ids(second) + ids(third) == made[::-1]
    assert third.body["next_cursor"] is None


def test_a_cursor_belongs_to_its_filter(published: Site) -> None:
    for number in range(3):
        request(published, RUN[:-1] + str(number))
    cursor = published.operator.get(f"/v1/runs?limit=2&location={LOCATION}").body["next_cursor"]
    assert published.operator.get(f"/v1/runs?limit=2&location={LOCATION}&cursor={cursor}").status == 200
    for other in ("", f"&target={TARGET}", "&state=queued", "&location=bakery"):
        answer = published.operator.get(f"/v1/runs?limit=2{other}&cursor={cursor}")
        assert (answer.status, answer.body["code"]) == (422, "invalid_request"), other
        assert answer.body["errors"][0]["field"] == "cursor"


@pytest.mark.parametrize("cursor", ["x", "e30", "%00", "A" * 1999, "A" * 2001])
def test_a_cursor_that_is_none_is_refused(site: Site, cursor: str) -> None:
    answer = site.operator.get(f"/v1/runs?cursor={cursor}")
    assert (answer.status, answer.body["code"]) == (422, "invalid_request")


def test_a_cursor_with_a_made_up_key_is_refused(published: Site) -> None:
    request(published)
    forged = encode_cursor({"events": RUN}, ["not a number"])
    answer = published.operator.get(f"/v1/runs/{RUN}/events?cursor={forged}")
    assert (answer.status, answer.body["code"]) == (422, "invalid_request")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (f"job={JOB}", True),
        ("job=other", False),
        ("state=queued", True),
        ("state=running", False),
        ("origin=manual", True),
        ("origin=schedule", False),
        ("after=2020-01-01T00:00:00Z", True),
        ("before=2020-01-01T00:00:00Z", False),
    ],
)
def test_a_list_is_filtered(published: Site, query: str, found: bool) -> None:
    request(published)
    assert ids(published.operator.get(f"/v1/runs?{query}")) == ([RUN] if found else [])


@pytest.mark.parametrize("limit", ["0", "201", "-1", "many"])
def test_a_page_has_1_to_200_items(site: Site, limit: str) -> None:
    answer = site.operator.get(f"/v1/runs?limit={limit}")
    assert (answer.status, answer.body["errors"][0]["field"]) == (422, "limit")


def test_a_queued_run_is_cancelled_at_once(published: Site) -> None:
    request(published)
    published.woken()
    answer = published.operator.post(f"/v1/runs/{RUN}/cancel", CANCEL)
    assert (answer.status, answer.body["status"]) == (200, "cancelled")
    assert published.operator.get(f"/v1/runs/{RUN}").body["state"] == "cancelled"
    assert published.woken() == [{"v": 1, "shard": 0, "kind": "wake"}]
    assert published.operator.post(f"/v1/runs/{RUN}/cancel", CANCEL).body == answer.body


def test_an_accepted_run_is_asked_to_stop(published: Site) -> None:
    worker = published.accepted()
    assert worker.post(f"/v1/worker/runs/{RUN}/start", {"boot_id": BOOT}).status == 200
    answer = published.operator.post(f"/v1/runs/{RUN}/cancel", CANCEL)
    assert (answer.status, answer.body["status"]) == (202, "cancel_requested")
    other = published.operator.post(f"/v1/runs/{RUN}/cancel", CANCEL | {"cancel_id": "can_0000000000000002"})
    assert (other.status, other.body["status"], other.body["cancel_id"]) == (
        200,
        "already_requested",
        CANCEL["cancel_id"],
    )


def test_a_finished_run_cannot_be_cancelled(published: Site) -> None:
    worker = published.accepted()
    worker.post(f"/v1/worker/runs/{RUN}/start", {"boot_id": BOOT})
    worker.post(f"/v1/worker/runs/{RUN}/reports", END)
    answer = published.operator.post(f"/v1/runs/{RUN}/cancel", CANCEL)
    assert (answer.status, answer.body["code"]) == (409, "already_finished")
    assert answer.body["facts"] == {"state": "succeeded"}


def test_logs_are_given_as_links(published: Site) -> None:
    logged = RUN[:-1] + "8"
    request(published, logged)
    published.services.aws.objects.put(f"runs/{logged}/logs/000.log", b"done")
    (part,) = published.operator.get(f"/v1/runs/{logged}/logs").body["items"]
    assert part["name"] == "000.log"
    assert "X-Amz-Signature" in part["url"] or "Signature" in part["url"]
