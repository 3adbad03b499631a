"""Resolve: a person ends what nothing else can end (10.4)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from chalicelib.kernel.errors import AlreadyFinished, ClaimEnded, InvalidRequest, NotFound, NotTerminal, StillBeating
from chalicelib.leases.boots import key_of
from chalicelib.runs.model import CancelRequest, ResolveRequest
from chalicelib.runs.resolving import ResolveAnswer
from tests.store.world import BOOT, World, terminal

START = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
RESOLVE = "res_0000000000000001"


@pytest.fixture
def still(world: World) -> World:
    world.at = START
    retries = {"max": 2, "on": ["launch_failed", "lost", "failed"]}
    world.publish({"orders": {"relations": ["a", "b"], "retries": retries}, "other": {"relations": ["a"]}})
    return world


def running(world: World) -> tuple[str, str]:
    run_id = world.request("orders")
    world.run_pass()
    return run_id, world.start(run_id)


def mark_lost(world: World, run_id: str, counter: int | None = 1) -> None:
    """As the recovery pass does when the counter stood still for a whole lease."""
    world.sql("UPDATE runs SET heartbeat_lost_at = %s WHERE run_id = %s", world.at, run_id)
    world.sql("INSERT INTO heartbeat_observations VALUES (%s, %s, 'lost', %s)", BOOT, world.at, counter)


def resolve(world: World, run_id: str, outcome: str = "failed", identity: str = RESOLVE) -> ResolveAnswer:
    request = ResolveRequest.model_validate({"resolve_id": identity, "outcome": outcome, "reason": "seen dead"})
    return world.runs.resolve(run_id, request, "operator")


def test_a_lost_run_ends_as_the_operator_says_and_frees_everything(still: World) -> None:
    """BR-097: the forced release names who and why, and fences the old holder."""
    still.sql("UPDATE targets SET settle_seconds = 900")
    run_id, claim_id = running(still)
    waiting = still.request("other")
    still.run_pass()
    mark_lost(still, run_id)
    answer = resolve(still, run_id)
    assert (answer.status, answer.state, answer.relations) == ("resolved", "failed", ["a", "b"])
    assert not answer.process_end_proved
    assert "not proved" in answer.warnings[0]
    view = still.runs.run(run_id)
    assert (view.state, view.end_reason, view.reported_outcome) == ("failed", "resolved", None)
    assert still.sql("SELECT 1 FROM write_claims UNION ALL SELECT 1 FROM slots") == []
    event = still.runs.events(run_id, None, None).items[-2]
    assert event.kind == "resolved"
    assert (event.payload["resolved_by"], event.payload["reason"]) == ("operator", "seen dead")
    still.run_pass()
    assert still.state(waiting) == "claimed"
    with pytest.raises(ClaimEnded):
        still.runs.report(run_id, claim_id, terminal("succeeded"))
    assert still.runs.events(run_id, None, None).items[-1].kind == "late_report"
    assert still.state(run_id) == "failed"


def test_its_worker_is_told_to_stop_after_the_commit(still: World) -> None:
    run_id, claim_id = running(still)
    mark_lost(still, run_id)
    resolve(still, run_id)
    item = still.leases.get(*key_of(BOOT, 0))
    assert item is not None
    assert item["revoked"] == {claim_id: True}


def test_no_policy_starts_a_resolved_run_again(still: World) -> None:
    run_id, _ = running(still)
    mark_lost(still, run_id)
    resolve(still, run_id)
    assert still.runs.run(run_id).retried_by is None


def test_the_same_id_gives_the_same_answer_and_another_finds_nothing(still: World) -> None:
    run_id, _ = running(still)
    mark_lost(still, run_id)
    answer = resolve(still, run_id)
    assert resolve(still, run_id, "succeeded") == answer
    with pytest.raises(AlreadyFinished, match="nothing to resolve"):
        resolve(still, run_id, identity="res_0000000000000002")
    assert [e.kind for e in still.runs.events(run_id, None, None).items].count("resolved") == 1


def test_a_worker_that_was_not_found_silent_is_not_resolved(still: World) -> None:
    run_id, _ = running(still)
    with pytest.raises(StillBeating, match="cancel"):
        resolve(still, run_id)
    assert still.state(run_id) == "running"


@pytest.mark.parametrize("seen", [1, None], ids=["its counter moved", "it had no lease then"])
def test_a_worker_that_beats_again_is_not_resolved(still: World, seen: int | None) -> None:
    run_id, _ = running(still)
    mark_lost(still, run_id, seen)
    still.leases.items[key_of(BOOT, 0)]["counter"] = 2
    with pytest.raises(StillBeating, match="beats again"):
        resolve(still, run_id)
    assert still.state(run_id) == "running"
    still.leases.items.clear()
    assert resolve(still, run_id).state == "failed"


def test_a_mark_outlives_its_observation(still: World) -> None:
    """Observations are kept for two days; the mark itself then says that the worker is silent."""
    run_id, _ = running(still)
    mark_lost(still, run_id)
    still.sql("DELETE FROM heartbeat_observations")
    assert resolve(still, run_id).state == "failed"


def test_what_no_worker_has_is_cancelled_and_not_resolved(still: World) -> None:
    queued = still.request("orders")
    with pytest.raises(NotTerminal, match="runs cancel"):
        resolve(still, queued)
    still.run_pass()
    with pytest.raises(NotTerminal):
        resolve(still, queued)
    with pytest.raises(NotFound):
        resolve(still, "run_of_nobody_000000")


@pytest.mark.parametrize(("outcome", "state"), [("failed", "launch_failed"), ("cancelled", "cancelled")])
def test_a_run_that_never_started_ends_in_a_state_that_says_so(still: World, outcome: str, state: str) -> None:
    run_id = still.request("orders")
    still.run_pass()
    still.accept(run_id)
    mark_lost(still, run_id)
    with pytest.raises(InvalidRequest, match="never started"):
        resolve(still, run_id, "succeeded", "res_0000000000000009")
    assert resolve(still, run_id, outcome).state == state


def test_a_cancel_that_was_asked_before_wins(still: World) -> None:
    """S45; and a cancel whose worker is gone does not hang for ever (BR-088, BR-127)."""
    run_id, _ = running(still)
    still.runs.cancel(run_id, CancelRequest(cancel_id="can_0000000000000001"), "tester")
    mark_lost(still, run_id)
    answer = resolve(still, run_id, "succeeded")
    assert answer.state == "cancelled"
    assert any("cancelling it was asked before" in warning for warning in answer.warnings)
    assert still.runs.run(run_id).state == "cancelled"


# --- a finished run whose relations settle


@pytest.fixture
def settling(still: World) -> tuple[World, str]:
    still.sql("UPDATE targets SET settle_seconds = 900")
    run_id, claim_id = running(still)
    still.finish(run_id, claim_id, "failed", reason="timed_out", settled=False)
    return still, run_id


def test_what_settles_is_freed_and_the_state_stays(settling: tuple[World, str]) -> None:
    world, run_id = settling
    before = world.runs.run(run_id)
    answer = resolve(world, run_id, "succeeded")
    assert (answer.state, answer.relations, answer.process_end_proved) == ("failed", ["a", "b"], True)
    assert any("never changes" in warning for warning in answer.warnings)
    assert any("2026-12-01T06:15:00.000000Z" in warning for warning in answer.warnings)
    assert world.runs.run(run_id) == before
    assert world.sql("SELECT 1 FROM write_claims") == []
    with pytest.raises(AlreadyFinished):
        resolve(world, run_id, identity="res_0000000000000002")


def test_what_has_settled_has_nothing_to_resolve(settling: tuple[World, str]) -> None:
    world, run_id = settling
    world.at = START + timedelta(seconds=901)
    world.run_pass()
    with pytest.raises(AlreadyFinished):
        resolve(world, run_id)


def test_a_reason_is_required(still: World) -> None:
    fields = {"resolve_id": RESOLVE, "outcome": "failed"}
    refused: list[Callable[[], object]] = [
        lambda: ResolveRequest.model_validate(fields),
        lambda: ResolveRequest.model_validate(fields | {"reason": ""}),
        lambda: ResolveRequest.model_validate(fields | {"reason": "  "}),
        lambda: ResolveRequest.model_validate(fields | {"reason": "x" * 4_097}),
        lambda: ResolveRequest.model_validate(fields | {"reason": "x", "outcome": "launch_failed"}),
    ]
    for wrong in refused:
        with pytest.raises(ValueError, match=r"reason|outcome"):
            wrong()
    assert still.sql("SELECT 1 FROM run_events WHERE kind = 'resolved'") == []
