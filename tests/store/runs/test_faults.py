"""Lost messages, dead workers, deadlines and cancels: no run is lost, none is doubled (section 2 of the field cases)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from chalicelib.kernel.errors import AlreadyFinished, ClaimEnded, RunCancelled, Unavailable
from chalicelib.runs.model import CancelRequest, StartRequest
from tests.store.world import BOOT, World, terminal

CANCEL, OTHER_CANCEL = "can_0000000000000001", "can_0000000000000002"
START = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)


@pytest.fixture
def still(world: World) -> World:
    """The world at a fixed time."""
    world.at = START
    world.publish({"orders": {"relations": ["a"]}})
    return world


def later(world: World, seconds: float) -> None:
    assert world.at is not None
    world.at += timedelta(seconds=seconds)


def test_a_claim_whose_send_failed_is_sent_by_a_later_pass(still: World) -> None:
    """BR-052: killed after the claim and before the send: the next pass sends once."""
    run_id = still.request("orders")
    still.queues.broken = True
    with pytest.raises(Unavailable):
        still.run_pass()
    assert still.state(run_id) == "claimed"
    still.queues.broken = False
    still.run_pass()
    assert "run-container" not in still.queues.sent
    later(still, 31)
    still.run_pass()
    still.run_pass()
    assert len(still.queues.sent["run-container"]) == 1


def test_a_message_that_is_sent_twice_starts_one_execution(still: World) -> None:
    """BR-052: killed after the send and before it was recorded: the worker side de-duplicates."""
    run_id = still.request("orders")
    still.run_pass()
    still.sql("UPDATE outbox SET sent_at = NULL")
    later(still, 31)
    still.run_pass()
    first, second = still.queues.sent["run-container"]
    assert first == second
    claim_id = still.start(run_id)
    still.finish(run_id, claim_id)
    with pytest.raises(ClaimEnded):
        still.accept(run_id)


def test_a_claim_that_nobody_accepts_ends_by_its_deadline_and_a_late_worker_is_refused(still: World) -> None:
    """BR-071: the start time-out also revokes; the container that comes later writes nothing."""
    run_id = still.request("orders")
    still.run_pass()
    claim_id = still.claim_of(run_id)
    later(still, 899)
    still.run_pass()
    assert still.state(run_id) == "claimed"
    later(still, 2)
    still.run_pass()
    view = still.runs.run(run_id)
    assert (view.state, view.end_reason) == ("launch_failed", "accept_timeout")
    assert still.sql("SELECT 1 FROM write_claims UNION ALL SELECT 1 FROM slots") == []
    with pytest.raises(ClaimEnded):
        still.accept(run_id)
    with pytest.raises(ClaimEnded):
        still.runs.start(run_id, claim_id, StartRequest(boot_id=BOOT))


def test_a_worker_that_dies_between_accept_and_start_ends_by_its_deadline(still: World) -> None:
    run_id = still.request("orders")
    still.run_pass()
    still.accept(run_id)
    later(still, 601)
    still.run_pass()
    assert still.runs.run(run_id).end_reason == "start_timeout"


def test_no_deadline_touches_a_running_run(still: World) -> None:
    run_id = still.request("orders")
    still.run_pass()
    still.start(run_id)
    later(still, 100_000)
    still.run_pass()
    assert still.state(run_id) == "running"


def test_a_boot_proved_ended_settles_its_runs_each_in_its_own_way(still: World) -> None:
    still.publish({f"j{i}": {"relations": [f"r{i}"]} for i in range(4)}, snapshot="d" * 64)
    claimed, running, cancelled, untouched = (still.request(f"j{i}") for i in range(4))
    still.run_pass()
    still.accept(claimed)
    still.start(running)
    still.start(cancelled)
    still.runs.cancel(cancelled, CancelRequest(cancel_id=CANCEL), "tester")
    assert sorted(still.runs.boot_ended(BOOT).runs) == sorted([claimed, running, cancelled])
    ends = [(still.state(r), still.runs.run(r).end_reason) for r in (claimed, running, cancelled, untouched)]
    assert ends == [("launch_failed", "lost_before_start"), ("failed", "lost"), ("cancelled", None), ("claimed", None)]
    claim = still.runs.run(running).claim
    assert claim is not None
    assert claim.process_ended_at == claim.ended_at == START
    assert still.runs.boot_ended(BOOT).runs == []
    assert still.runs.live_boots() == []


def test_a_lost_run_keeps_its_relation_for_the_settle_time(still: World) -> None:
    still.sql("UPDATE targets SET settle_seconds = 900")
    run_id = still.request("orders")
    still.run_pass()
    still.start(run_id)
    still.runs.boot_ended(BOOT)
    waiting = still.request("orders")
    still.run_pass()
    assert [b.code for b in still.runs.why(waiting).blockers] == ["write_claim_settling"]
    later(still, 901)
    still.run_pass()
    assert still.state(waiting) == "claimed"


def test_a_report_after_the_proof_is_refused_and_kept(still: World) -> None:
    run_id = still.request("orders")
    still.run_pass()
    claim_id = still.start(run_id)
    still.runs.boot_ended(BOOT)
    with pytest.raises(ClaimEnded):
        still.runs.report(run_id, claim_id, terminal("succeeded"))
    assert still.state(run_id) == "failed"
    assert still.runs.events(run_id, None, None).items[-1].kind == "late_report"


def test_a_dead_letter_of_a_claim_never_accepted_is_a_verdict_and_of_another_is_nothing(still: World) -> None:
    run_id = still.request("orders")
    still.run_pass()
    (body,) = still.queues.sent["run-container"]
    assert still.dispatch.dead_letter(body) == [run_id]
    assert still.runs.run(run_id).end_reason == "queue_dead"
    assert still.dispatch.dead_letter(body) == []
    other = still.request("orders")
    still.run_pass()
    still.start(other)
    assert still.dispatch.dead_letter(still.queues.sent["run-container"][-1]) == []
    assert still.state(other) == "running"
    for rubbish in ("", "not json", "[]", '{"run_id": "x"}', '{"run_id": "x", "claim_id": "y"}'):
        assert still.dispatch.dead_letter(rubbish) == []


def test_a_queued_run_is_cancelled_at_once(still: World) -> None:
    run_id = still.request("orders")
    answer = still.runs.cancel(run_id, CancelRequest(cancel_id=CANCEL), "tester")
    assert (answer.status, still.state(run_id)) == ("cancelled", "cancelled")
    assert still.run_pass() == []
    assert still.runs.cancel(run_id, CancelRequest(cancel_id=CANCEL), "tester") == answer
    with pytest.raises(AlreadyFinished, match="cancelled"):
        still.runs.cancel(run_id, CancelRequest(cancel_id=OTHER_CANCEL), "tester")


def test_a_claimed_run_is_cancelled_at_once_and_its_message_finds_nothing(still: World) -> None:
    run_id = still.request("orders")
    still.run_pass()
    assert still.runs.cancel(run_id, CancelRequest(cancel_id=CANCEL), "tester").status == "cancelled"
    with pytest.raises(RunCancelled):
        still.accept(run_id)
    assert still.sql("SELECT 1 FROM write_claims UNION ALL SELECT 1 FROM slots") == []


def test_a_running_run_is_asked_to_stop_and_then_is_cancelled_whatever_the_tool_says(still: World) -> None:
    run_id = still.request("orders")
    still.run_pass()
    claim_id = still.start(run_id)
    answer = still.runs.cancel(run_id, CancelRequest(cancel_id=CANCEL), "tester")
    assert answer.status == "cancel_requested"
    assert len(still.signals()) == 1
    assert still.sql("SELECT count(*) AS n FROM write_claims") == [{"n": 1}]
    again = still.runs.cancel(run_id, CancelRequest(cancel_id=OTHER_CANCEL), "somebody")
    assert (again.status, again.cancel_id, again.requested_by) == ("already_requested", CANCEL, "tester")
    still.finish(run_id, claim_id, "succeeded")
    view = still.runs.run(run_id)
    assert (view.state, view.reported_outcome) == ("cancelled", "succeeded")


def test_a_run_cancelled_between_accept_and_start_does_not_start(still: World) -> None:
    run_id = still.request("orders")
    still.run_pass()
    claim_id = still.accept(run_id)
    still.runs.cancel(run_id, CancelRequest(cancel_id=CANCEL), "tester")
    with pytest.raises(RunCancelled):
        still.runs.start(run_id, claim_id, StartRequest(boot_id=BOOT))
    still.finish(run_id, claim_id, "cancelled")
    assert still.state(run_id) == "cancelled"


def test_a_pass_writes_the_cancel_signal_again_until_the_run_ends(still: World) -> None:
    run_id = still.request("orders")
    still.run_pass()
    claim_id = still.start(run_id)
    still.runs.cancel(run_id, CancelRequest(cancel_id=CANCEL), "tester")
    still.leases.updates.clear()
    still.run_pass()
    assert len(still.signals()) == 1
    still.finish(run_id, claim_id, "cancelled")
    still.run_pass()
    assert len(still.signals()) == 1


def test_cancel_and_completion_race_and_exactly_one_order_wins(world: World) -> None:
    world.publish({f"j{i}": {} for i in range(12)})
    runs = [world.request(f"j{i}") for i in range(12)]
    world.run_pass()
    claims = {run: world.start(run) for run in runs}

    def cancel(run: str) -> str:
        try:
            return world.runs.cancel(run, CancelRequest(cancel_id=CANCEL), "tester").status
        except AlreadyFinished:
            return "already_finished"

    with ThreadPoolExecutor(8) as pool:
        cancels = [pool.submit(cancel, run) for run in runs]
        list(pool.map(lambda run: world.finish(run, claims[run]), runs))
    for run, answer in zip(runs, [c.result() for c in cancels], strict=True):
        assert (answer, world.state(run)) in {("cancel_requested", "cancelled"), ("already_finished", "succeeded")}


def test_unaccepted_claims_are_sent_again_after_the_queues_were_lost(still: World) -> None:
    still.publish({"one": {}, "two": {}}, snapshot="e" * 64)
    accepted, waiting = still.request("one"), still.request("two")
    still.run_pass()
    still.start(accepted)
    assert still.dispatch.forget_sent_unaccepted() == [still.claim_of(waiting)]
    still.run_pass()
    assert waiting in still.queues.sent["run-container"][-1]
