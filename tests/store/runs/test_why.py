"""What `runs why` says: blockers as they are now, and how far an active run has come (7.2, S32)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from chalicelib.runs.model import WhyView
from tests.store.world import BOOT, World

START = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)


@pytest.fixture
def still(world: World) -> World:
    """A fixed time."""
    world.at = START
    return world


def later(world: World, seconds: float) -> None:
    assert world.at is not None
    world.at += timedelta(seconds=seconds)


def why(world: World, run_id: str) -> WhyView:
    return world.runs.why(run_id)


def test_the_holder_of_a_relation_is_shown_with_what_is_known_of_its_worker(still: World) -> None:
    """BR-097: who holds it, where, and since when it has been silent."""
    still.publish({"one": {"relations": ["orders"]}, "two": {"relations": ["orders"]}})
    holder = still.request("one")
    still.run_pass()
    still.start(holder)
    waiting = still.request("two")
    still.run_pass()
    (blocker,) = why(still, waiting).blockers
    assert (blocker.detail["holder"], blocker.detail["holder_state"], blocker.detail["holder_job"]) == (
        holder,
        "running",
        "one",
    )
    assert blocker.detail["holder_boot"] == BOOT
    assert "holder_silent_seconds" not in blocker.detail
    still.sql("UPDATE runs SET heartbeat_lost_at = %s WHERE run_id = %s", still.at, holder)
    later(still, 40)
    (blocker,) = why(still, waiting).blockers
    assert blocker.detail["holder_silent_seconds"] == 40
    assert "has missed its beats for 40 s" in blocker.clears_when
    assert f"`tidemill runs resolve {holder}`" in why(still, holder).explanation


def test_a_settling_relation_says_when_it_is_free(still: World) -> None:
    still.sql("UPDATE targets SET settle_seconds = 900")
    still.publish({"one": {"relations": ["a"]}, "two": {"relations": ["a"]}})
    holder = still.request("one")
    still.run_pass()
    still.finish(holder, still.start(holder), "failed", settled=False, reason="killed")
    waiting = still.request("two")
    still.run_pass()
    (blocker,) = why(still, waiting).blockers
    assert (blocker.code, blocker.detail["release_after"]) == ("write_claim_settling", "2026-12-01T06:15:00.000000Z")
    assert blocker.detail["holder_state"] == "failed"


def test_the_numbers_of_a_pool_are_those_of_now(still: World) -> None:
    still.publish({f"j{n}": {"pools": [{"name": "default", "weight": 4}]} for n in range(3)})
    runs = [still.request(f"j{n}") for n in range(3)]
    still.run_pass()
    waiting = next(run for run in runs if still.state(run) == "queued")
    still.sql("UPDATE pools SET slot_limit = 9 WHERE pool = 'default'")
    (blocker,) = why(still, waiting).blockers
    assert (blocker.code, blocker.detail["limit"], blocker.detail["used"], blocker.detail["need"]) == (
        "pool_full",
        9,
        8,
        4,
    )
    assert set(blocker.detail["holders"]) == set(runs) - {waiting}


def test_an_installation_without_workers_of_a_kind_says_so(application_url: str) -> None:
    world = World(application_url, container_slots=0)
    world.target()
    world.publish({"one": {}})
    run_id = world.request("one")
    world.run_pass()
    (blocker,) = why(world, run_id).blockers
    world.close()
    assert (blocker.code, blocker.subject) == ("pool_never_fits", "worker:container")
    assert blocker.clears_when == "the installation runs workers of the kind 'container' (limit 0)"


def test_an_active_run_says_how_far_it_has_come(still: World) -> None:
    still.publish({"one": {}})
    run_id = still.request("one")
    still.run_pass()
    later(still, 5)
    claimed = why(still, run_id)
    assert claimed.progress is not None
    assert (claimed.progress.dispatched_seconds, claimed.progress.accepted_seconds, claimed.progress.busy_boots) == (
        5,
        None,
        0,
    )
    assert claimed.explanation.endswith(
        "no worker has accepted it yet; no container is known to work now: check that one runs"
    )
    claim_id = still.accept(run_id)
    later(still, 5)
    accepted = why(still, run_id).progress
    assert accepted is not None
    assert (accepted.dispatched_seconds, accepted.accepted_seconds, accepted.started_seconds, accepted.busy_boots) == (
        10,
        5,
        None,
        1,
    )
    still.start(run_id)
    later(still, 200)
    running = why(still, run_id)
    assert running.progress is not None
    assert running.progress.started_seconds == 200
    assert running.explanation == f"running for 3 min on boot {BOOT}"
    still.finish(run_id, claim_id)
    assert (why(still, run_id).progress, why(still, run_id).explanation) == (None, "succeeded; it waits for nothing")


def test_a_lambda_run_counts_no_boots(still: World) -> None:
    still.publish({"one": {"worker": "lambda"}})
    run_id = still.request("one")
    still.run_pass()
    progress = why(still, run_id).progress
    assert progress is not None
    assert progress.busy_boots is None


def test_of_many_blockers_some_are_kept(still: World) -> None:
    relations = [f"r{n:03}" for n in range(120)]
    still.publish({"one": {"relations": relations}, "two": {"relations": relations}})
    still.request("one")
    waiting = still.request("two")
    still.run_pass()
    assert len(why(still, waiting).blockers) == 50
    still.run_pass()
    assert len(why(still, waiting).blockers) == 50
