"""Running a finished run again, and saying how a lost one ended."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.api.site import BOOT, JOB, PUBLICATION, RUN, Answered, Caller, Site, index, publication

HERE = "/v1/locations/cafe/targets/dev"
AGAIN = RUN[:-1] + "2"
END = {"report_key": "rep_0000000000000001", "kind": "terminal", "outcome": {"state": "failed", "settled": True}}
RESOLVE = {"resolve_id": "res_0000000000000001", "outcome": "failed", "reason": "the machine is gone"}


@pytest.fixture
def published(site: Site) -> Site:
    site.publish()
    site.woken()
    return site


def started(site: Site) -> Caller:
    worker = site.accepted()
    assert worker.post(f"/v1/worker/runs/{RUN}/start", {"boot_id": BOOT}).status == 200
    return worker


def failed(site: Site) -> None:
    worker = started(site)
    nodes = {"report_key": "rep_0000000000000002", "kind": "nodes", "nodes": [{"node": "orders", "status": "failed"}]}
    assert worker.post(f"/v1/worker/runs/{RUN}/reports", nodes).status == 200
    assert worker.post(f"/v1/worker/runs/{RUN}/reports", END).status == 200


def rerun(site: Site, **fields: Any) -> Answered:
    return site.operator.post(f"/v1/runs/{RUN}/rerun", {"run_id": AGAIN, **fields})


def sql(site: Site, text: str, *values: object) -> None:
    with psycopg.connect(site.services.settings.database_url, autocommit=True) as connection:
        connection.execute(text.encode(), values)


def mark_lost(site: Site) -> None:
    sql(site, "UPDATE runs SET heartbeat_lost_at = clock_timestamp() WHERE run_id = %s", RUN)
    sql(site, "INSERT INTO heartbeat_observations VALUES (%s, clock_timestamp(), 'lost', 1)", BOOT)


# --- rerun


def test_a_finished_run_is_run_again_once(published: Site) -> None:
    failed(published)
    published.woken()
    first = rerun(published)
    assert (first.status, first.body["reused"]) == (201, False)
    run = first.body["run"]
    assert (run["run_id"], run["rerun_of"], run["origin"], run["state"]) == (AGAIN, RUN, "rerun", "queued")
    assert published.woken() == [{"v": 1, "shard": 0, "kind": "wake"}]
    again = rerun(published)
    assert (again.status, again.body) == (200, {"run": run, "reused": True})
    other = rerun(published, from_failed=True)
    assert (other.status, other.body["code"]) == (409, "id_reused")


def test_a_run_that_goes_on_is_not_run_again(published: Site) -> None:
    published.queued()
    answer = rerun(published)
    assert (answer.status, answer.body["code"], answer.body["facts"]) == (409, "not_terminal", {"state": "queued"})
    assert published.operator.get(f"/v1/runs/{AGAIN}").status == 404


def test_what_is_left_over_is_the_selection_and_nothing_left_is_refused(published: Site) -> None:
    failed(published)
    answer = rerun(published, from_failed=True)
    assert (answer.status, answer.body["run"]["selection"]) == (201, ["orders"])
    sql(published, "UPDATE run_nodes SET status = 'succeeded' WHERE run_id = %s", RUN)
    nothing = published.operator.post(f"/v1/runs/{RUN}/rerun", {"run_id": RUN[:-1] + "3", "from_failed": True})
    assert (nothing.status, nothing.body["code"]) == (409, "nothing_to_rerun")


def test_both_ways_at_once_are_refused_by_name(published: Site) -> None:
    failed(published)
    answer = rerun(published, current=True, from_failed=True)
    assert (answer.status, answer.body["code"]) == (422, "invalid_request")
    assert "exclude each other" in answer.body["detail"]


def test_a_job_that_is_gone_is_missing_only_for_current(published: Site) -> None:
    failed(published)
    renamed = index().jobs[JOB].model_dump(mode="json") | {"job": "renamed", "triggers": []}
    body = publication(PUBLICATION[:-1] + "9", jobs={"renamed": renamed})
    assert published.operator.post(f"{HERE}/snapshots", body).status == 201
    answer = rerun(published, current=True)
    assert (answer.status, answer.body["code"]) == (404, "not_found")
    assert rerun(published).status == 201


# --- resolve


def test_a_lost_run_is_resolved_once_and_its_worker_refused(published: Site) -> None:
    worker = started(published)
    mark_lost(published)
    answer = published.operator.post(f"/v1/runs/{RUN}/resolve", RESOLVE)
    assert (answer.status, answer.body["state"], answer.body["process_end_proved"]) == (200, "failed", False)
    assert answer.body["relations"] == ["*"]
    assert "not proved" in answer.body["warnings"][0]
    assert published.operator.post(f"/v1/runs/{RUN}/resolve", RESOLVE).body == answer.body
    late = worker.post(f"/v1/worker/runs/{RUN}/reports", END)
    assert (late.status, late.body["code"]) == (409, "claim_ended")
    other = published.operator.post(f"/v1/runs/{RUN}/resolve", RESOLVE | {"resolve_id": "res_0000000000000002"})
    assert (other.status, other.body["code"]) == (409, "already_finished")


def test_a_run_with_a_live_worker_is_not_resolved(published: Site) -> None:
    started(published)
    answer = published.operator.post(f"/v1/runs/{RUN}/resolve", RESOLVE)
    assert (answer.status, answer.body["code"]) == (409, "still_beating")
    assert published.operator.get(f"/v1/runs/{RUN}").body["state"] == "running"


@pytest.mark.parametrize("reason", [None, "", "   "])
def test_a_forced_release_needs_a_reason_and_the_right(published: Site, reason: str | None) -> None:
    """BR-097: without a reason 422, without the permission 403, and nothing is freed by either."""
    started(published)
    mark_lost(published)
    body = {name: value for name, value in RESOLVE.items() if name != "reason"}
    without = published.operator.post(f"/v1/runs/{RUN}/resolve", body if reason is None else body | {"reason": reason})
    assert (without.status, without.body["errors"][0]["field"]) == (422, "reason")
    for grants in (("publish",), ("work",), ("publish", "work")):
        refused = published.holder(*grants).post(f"/v1/runs/{RUN}/resolve", RESOLVE)
        assert (refused.status, refused.body["code"]) == (403, "forbidden")
    assert published.operator.get(f"/v1/runs/{RUN}").body["state"] == "running"
