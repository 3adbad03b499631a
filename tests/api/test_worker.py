"""The path of a worker through the API: accept, inputs, start, reports, end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.site import BOOT, RUN, Caller, Site, acceptance
from tests.api.test_runs import END

OTHER_BOOT = "boot_0000000000000002"


@pytest.fixture
def published(site: Site) -> Site:
    site.publish()
    return site


def path(action: str) -> str:
    return f"/v1/worker/runs/{RUN}/{action}"


def test_a_run_goes_from_its_claim_to_its_end(published: Site) -> None:
    worker = published.accepted()
    assert worker.get(path("inputs")).body["job"] == "orders"
    verified = {"report_key": "rep_0000000000000000", "kind": "verified"}
    assert worker.post(path("reports"), verified).status == 200
    assert worker.post(path("start"), {"boot_id": BOOT}).body["state"] == "running"
    published.woken()
    assert worker.post(path("reports"), END).status == 200
    assert published.operator.get(f"/v1/runs/{RUN}").body["state"] == "succeeded"
    assert published.woken() == [{"v": 1, "shard": 0, "kind": "wake"}]


def test_finished_nodes_wake_nobody(published: Site) -> None:
    worker = published.accepted()
    worker.post(path("start"), {"boot_id": BOOT})
    published.woken()
    nodes = {
        "report_key": "rep_0000000000000002",
        "kind": "nodes",
        "nodes": [{"node": "orders", "status": "succeeded"}],
    }
    assert worker.post(path("reports"), nodes).status == 200
    assert published.woken() == []
    assert published.operator.get(f"/v1/runs/{RUN}/nodes").body["items"][0]["node"] == "orders"


def test_the_same_report_gives_the_same_answer_and_another_one_is_refused(published: Site) -> None:
    worker = published.accepted()
    worker.post(path("start"), {"boot_id": BOOT})
    first = worker.post(path("reports"), END)
    again = worker.post(path("reports"), END)
    assert (again.status, again.body) == (200, first.body)
    changed: Any = END | {"outcome": {"state": "failed", "end_reason": "tool_failed"}}
    answer = worker.post(path("reports"), changed)
    assert (answer.status, answer.body["code"]) == (409, "report_key_reused")


def test_accepting_again_ends_the_earlier_token(published: Site) -> None:
    first = published.accepted()
    claim = published.services.runs.run(RUN).claim
    assert claim is not None
    second = published.holder("work").post(path("accept"), acceptance(claim.claim_id))
    assert second.status == 200
    answer = first.get(path("inputs"))
    assert (answer.status, answer.body["code"]) == (401, "token_revoked")
    assert published.caller(second.body["worker_token"]).get(path("inputs")).status == 200


def test_another_boot_cannot_take_a_claim(published: Site) -> None:
    published.accepted()
    published.open_boot(OTHER_BOOT)
    claim = published.services.runs.run(RUN).claim
    assert claim is not None
    answer = published.holder("work").post(path("accept"), acceptance(claim.claim_id, OTHER_BOOT))
    assert (answer.status, answer.body["code"]) == (409, "claim_taken")


def test_a_boot_without_a_lease_cannot_accept(published: Site) -> None:
    claim_id = published.claimed()
    answer = published.holder("work").post(path("accept"), acceptance(claim_id))
    assert (answer.status, answer.body["errors"][0]["field"]) == (422, "boot_id")


def test_a_cancelled_claim_is_refused(published: Site) -> None:
    claim_id = published.claimed()
    published.operator.post(f"/v1/runs/{RUN}/cancel", {"cancel_id": "can_0000000000000001"})
    published.open_boot()
    answer = published.holder("work").post(path("accept"), acceptance(claim_id))
    assert (answer.status, answer.body["code"]) == (409, "cancelled")


def test_nothing_is_taken_after_the_boot_was_proved_to_be_gone(published: Site) -> None:
    worker = published.accepted()
    worker.post(path("start"), {"boot_id": BOOT})
    published.woken()
    ended = published.holder("work").post(f"/v1/worker/boots/{BOOT}/ended")
    assert ended.status == 200
    assert RUN in ended.text
    assert published.woken() == [{"v": 1, "shard": 0, "kind": "wake"}]
    answer = worker.post(path("reports"), END)
    assert answer.status in {401, 409}
    assert answer.body["code"] in {"claim_ended", "token_revoked"}


def test_logs_are_uploaded_to_the_run_s_own_place(published: Site) -> None:
    worker = published.accepted()
    urls = worker.post(path("log-uploads"), {"names": ["000.log"]}).body["urls"]
    assert list(urls) == ["000.log"]
    assert f"runs/{RUN}/logs/000.log" in urls["000.log"]


@pytest.mark.parametrize("name", ["../other", "a/b", "", "x" * 101])
def test_a_log_name_stays_in_its_place(published: Site, name: str) -> None:
    worker = published.accepted()
    answer = worker.post(path("log-uploads"), {"names": [name]})
    assert (answer.status, answer.body["code"]) == (422, "invalid_request")


def test_an_operator_has_no_claim(published: Site) -> None:
    published.accepted()
    operator: Caller = published.operator
    answer = operator.get(path("inputs"))
    assert (answer.status, answer.body["code"]) == (403, "forbidden")
