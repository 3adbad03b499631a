"""Retries: a new run in the transaction that ended the one before, waiting in the store and nowhere else (10.3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chalicelib.kernel.errors import AlreadyFinished, ClaimEnded
from chalicelib.runs.model import CancelRequest, RunView
from tests.store.world import BOOT, World, schedule, terminal

START = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
CANCEL = CancelRequest(cancel_id="can_0000000000000001")
POLICY = {"max": 2, "backoff": 60, "factor": 2, "max_backoff": 3_600, "on": ["launch_failed", "lost", "failed"]}


@pytest.fixture
def still(world: World) -> World:
    """A fixed time, and two jobs on one relation of which one is retried."""
    world.at = START
    world.publish({"orders": {"relations": ["a"], "retries": POLICY}, "other": {"relations": ["a"]}})
    return world


def later(world: World, seconds: float) -> None:
    assert world.at is not None
    world.at += timedelta(seconds=seconds)


def retry_of(world: World, run_id: str) -> RunView | None:
    retried_by = world.runs.run(run_id).retried_by
    return world.runs.run(retried_by) if retried_by else None


def failed(world: World, run_id: str, reason: str = "tool_failed", *, settled: bool = True) -> str:
    claim_id = world.start(run_id)
    world.finish(run_id, claim_id, "failed", reason=reason, settled=settled)
    return claim_id


def test_a_failed_run_is_retried_as_it_was_after_its_wait(still: World) -> None:
    still.publish(
        {"orders": {"inputs": {"n": {"type": "integer", "maps_to": "env"}}, "retries": POLICY}}, snapshot="c" * 64
    )
    run_id = still.request("orders", n=3)
    still.run_pass()
    failed(still, run_id)
    first, retry = still.runs.run(run_id), retry_of(still, run_id)
    assert retry is not None
    assert (retry.origin, retry.retry_of, retry.retry_number, retry.state) == ("retry", run_id, 1, "queued")
    assert (retry.snapshot_id, retry.inputs, retry.requested_by) == (first.snapshot_id, {"n": 3}, "tester")
    assert retry.not_before == START + timedelta(seconds=60)
    assert still.run_pass() == []
    later(still, 61)
    assert len(still.run_pass()) == 1
    assert still.state(retry.run_id) == "claimed"


def test_the_end_and_the_start_of_the_chain_are_told_in_events(still: World) -> None:
    run_id = still.request("orders")
    still.run_pass()
    failed(still, run_id)
    retry = retry_of(still, run_id)
    assert retry is not None
    assert still.runs.events(run_id, None, None).items[-1].payload["retry"] == retry.run_id
    (queued,) = still.runs.events(retry.run_id, None, None).items
    assert queued.kind == "queued"
    assert (queued.payload["retry_of"], queued.payload["retry_number"]) == (run_id, 1)
    assert queued.payload["not_before"] == "2026-12-01T06:01:00.000000Z"


def test_the_chain_ends_after_its_last_retry(still: World) -> None:
    run_id, waits = still.request("orders"), []
    for _ in range(2):
        still.run_pass()
        failed(still, run_id)
        retry = retry_of(still, run_id)
        assert retry is not None
        assert retry.not_before is not None
        waits.append((retry.not_before - still.at).total_seconds())  # type: ignore[operator]  # the time is set
        later(still, waits[-1])
        run_id = retry.run_id
    still.run_pass()
    failed(still, run_id)
    assert waits == [60, 120]
    assert retry_of(still, run_id) is None
    assert [row["retry_number"] for row in still.sql("SELECT retry_number FROM runs ORDER BY 1")] == [0, 1, 2]


@pytest.mark.parametrize("reason", ["usage", "empty_selection"])
def test_what_would_only_happen_again_is_not_retried(still: World, reason: str) -> None:
    run_id = still.request("orders")
    still.run_pass()
    failed(still, run_id, reason)
    assert retry_of(still, run_id) is None


@pytest.mark.parametrize("reason", ["drift", "inputs_invalid"])
def test_a_refused_verification_is_not_retried(still: World, reason: str) -> None:
    run_id = still.request("orders")
    still.run_pass()
    still.finish(run_id, still.accept(run_id), "launch_failed", reason=reason)
    assert retry_of(still, run_id) is None


def test_a_success_is_not_retried(still: World) -> None:
    run_id = still.request("orders")
    still.run_pass()
    still.finish(run_id, still.start(run_id))
    assert retry_of(still, run_id) is None


def test_what_the_policy_does_not_name_is_not_retried(still: World) -> None:
    still.publish({"orders": {"retries": POLICY | {"on": ["lost"]}}}, snapshot="d" * 64)
    run_id = still.request("orders")
    still.run_pass()
    failed(still, run_id)
    assert retry_of(still, run_id) is None


def test_an_error_while_cancelling_is_a_cancel_and_starts_nothing_again(still: World) -> None:
    """BR-124: retries 3, cancel asked, the worker reports a failure."""
    run_id = still.request("orders")
    still.run_pass()
    claim_id = still.start(run_id)
    still.runs.cancel(run_id, CANCEL, "tester")
    still.finish(run_id, claim_id, "failed", reason="tool_failed")
    view = still.runs.run(run_id)
    assert (view.state, view.reported_outcome, view.retried_by) == ("cancelled", "failed", None)


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_lost_run_is_retried_unless_somebody_wanted_it_gone(still: World, *, cancelled: bool) -> None:
    run_id = still.request("orders")
    still.run_pass()
    still.start(run_id)
    if cancelled:
        still.runs.cancel(run_id, CANCEL, "tester")
    still.runs.boot_ended(BOOT)
    assert (retry_of(still, run_id) is None) == cancelled


def test_a_retry_is_in_no_queue_while_it_waits(still: World) -> None:
    """BR-049: a wait of two hours is a row in the store; no message carries it, and it becomes one execution."""
    policy = POLICY | {"backoff": 7_200, "max_backoff": 7_200}
    still.publish({"orders": {"retries": policy}}, snapshot="e" * 64)
    run_id = still.request("orders")
    still.run_pass()
    failed(still, run_id)
    sent = len(still.queues.sent["run-container"])
    for _ in range(4):
        later(still, 1_799)
        still.run_pass()
    assert len(still.queues.sent["run-container"]) == sent
    later(still, 5)
    still.run_pass()
    still.run_pass()
    assert len(still.queues.sent["run-container"]) == sent + 1


def test_the_wait_holds_nothing_and_the_retry_waits_like_anyone(still: World) -> None:
    """BR-095: another run takes the relation during the wait; if it still has it then, the retry waits on."""
    run_id = still.request("orders")
    still.run_pass()
    failed(still, run_id)
    assert still.sql("SELECT 1 FROM write_claims UNION ALL SELECT 1 FROM slots") == []
    other = still.request("other")
    still.run_pass()
    assert still.state(other) == "claimed"
    later(still, 600)
    still.run_pass()
    retry = retry_of(still, run_id)
    assert retry is not None
    assert [(b.code, b.detail["holder"]) for b in still.runs.why(retry.run_id).blockers] == [("write_claim", other)]
    still.finish(other, still.start(other))
    still.run_pass()
    assert still.state(retry.run_id) == "claimed"


def test_the_process_before_writes_nothing_under_its_old_claim(still: World) -> None:
    """BR-047: the first attempt is still there while its retry is claimed; its reports are refused."""
    still.sql("UPDATE targets SET settle_seconds = 900")
    run_id = still.request("orders")
    still.run_pass()
    claim_id = still.start(run_id)
    still.runs.boot_ended(BOOT)
    later(still, 100)
    still.run_pass()
    retry = retry_of(still, run_id)
    assert retry is not None
    assert [b.code for b in still.runs.why(retry.run_id).blockers] == ["write_claim_settling"]
    later(still, 801)
    still.run_pass()
    assert still.state(retry.run_id) == "claimed"
    with pytest.raises(ClaimEnded):
        still.runs.report(run_id, claim_id, terminal("succeeded", key="rep_too_late_00000001"))
    still.open_boot("boot_0000000000000002")
    still.start(retry.run_id, "boot_0000000000000002")
    assert still.state(run_id) == "failed"


def test_a_waiting_retry_is_cancelled_at_once_and_the_refusal_names_it(still: World) -> None:
    run_id = still.request("orders")
    still.run_pass()
    failed(still, run_id)
    retry = retry_of(still, run_id)
    assert retry is not None
    with pytest.raises(AlreadyFinished, match=retry.run_id) as refused:
        still.runs.cancel(run_id, CANCEL, "tester")
    assert refused.value.facts == {"state": "failed", "retried_by": retry.run_id}
    assert still.runs.cancel(retry.run_id, CANCEL, "tester").status == "cancelled"
    later(still, 1_000)
    assert still.run_pass() == []
    assert retry_of(still, retry.run_id) is None


def test_a_job_that_is_gone_is_retried_by_the_snapshot_of_its_run(still: World) -> None:
    run_id = still.request("orders")
    still.run_pass()
    claim_id = still.start(run_id)
    still.publish({"renamed": {}}, snapshot="f" * 64)
    still.finish(run_id, claim_id, "failed", reason="killed")
    retry = retry_of(still, run_id)
    assert retry is not None
    later(still, 60)
    still.run_pass()
    assert still.state(retry.run_id) == "claimed"


def test_a_report_that_is_repeated_makes_one_retry(still: World) -> None:
    run_id = still.request("orders")
    still.run_pass()
    claim_id = still.start(run_id)
    end = terminal("failed", reason="tool_failed")
    assert still.runs.report(run_id, claim_id, end) == still.runs.report(run_id, claim_id, end)
    assert still.sql("SELECT count(*) AS n FROM runs") == [{"n": 2}]


# --- ticks that a run covered (5.4)


@pytest.fixture
def covering(world: World) -> tuple[World, str]:
    """A run by hand that covers the first tick of its job's schedule."""
    world.at = START - timedelta(minutes=5)
    fields: dict[str, Any] = {"triggers": [schedule("0 * * * *", name="orders/schedule")]}
    world.publish({"orders": fields | {"retries": POLICY}, "holder": {"relations": ["a"]}})
    run_id = world.request("orders")
    world.at = START + timedelta(seconds=1)
    return world, run_id


def ticks(world: World) -> list[tuple[str, str | None, str | None]]:
    rows = world.sql("SELECT outcome, run_id, covered_by FROM ticks ORDER BY scheduled_for")
    return [(row["outcome"], row["run_id"], row["covered_by"]) for row in rows]


def test_a_covered_tick_goes_over_to_the_retry_of_a_run_that_never_started(covering: tuple[World, str]) -> None:
    world, run_id = covering
    world.run_pass()
    assert ticks(world) == [("covered", None, run_id)]
    for _ in range(2):
        later(world, 1_000)
        world.run_pass()
        retry = retry_of(world, run_id)
        assert retry is not None
        assert ticks(world) == [("covered", None, retry.run_id)]
        assert world.sql("SELECT 1 FROM runs WHERE origin = 'schedule'") == []
        run_id = retry.run_id
        later(world, 130)
        world.run_pass()


def test_the_last_retry_gives_its_covered_tick_a_run_of_its_own(covering: tuple[World, str]) -> None:
    world, run_id = covering
    world.publish(
        {"orders": {"triggers": [schedule("0 * * * *", name="orders/schedule")], "retries": POLICY | {"max": 1}}},
        snapshot="9" * 64,
    )
    world.sql("UPDATE runs SET snapshot_id = %s", "9" * 64)
    world.run_pass()
    later(world, 901)
    world.run_pass()
    retry = retry_of(world, run_id)
    assert retry is not None
    later(world, 61)
    world.run_pass()
    later(world, 901)
    world.run_pass()
    assert world.runs.run(retry.run_id).end_reason == "accept_timeout"
    ((outcome, own_run, covered_by),) = ticks(world)
    assert (outcome, covered_by) == ("requested", None)
    assert world.runs.run(str(own_run)).scheduled_for == START


def test_a_waiting_retry_covers_no_tick_before_its_time(world: World) -> None:
    world.at = START - timedelta(minutes=5)
    policy = POLICY | {"backoff": 1_200}
    world.publish({"orders": {"triggers": [schedule("*/10 * * * *", name="orders/schedule")], "retries": policy}})
    run_id = world.request("orders")
    world.run_pass()
    failed(world, run_id)
    world.at = START
    world.run_pass()
    retry = retry_of(world, run_id)
    assert retry is not None
    ((outcome, own_run, covered_by),) = ticks(world)
    assert (outcome, covered_by) == ("requested", None)
    assert own_run != retry.run_id


def test_a_cancelled_retry_names_the_ticks_that_it_covers(covering: tuple[World, str]) -> None:
    world, run_id = covering
    world.run_pass()
    later(world, 901)
    world.run_pass()
    retry = retry_of(world, run_id)
    assert retry is not None
    answer = world.runs.cancel(retry.run_id, CANCEL, "tester")
    assert [tick["scheduled_for"] for tick in answer.covered_ticks] == ["2026-12-01T06:00:00.000000Z"]
