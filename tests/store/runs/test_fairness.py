"""The fairness hold on a real store: over batches, over shards, and never for ever (7.2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from chalicelib.catalog.plan import shard_of
from chalicelib.leases.hints import Hints
from chalicelib.runs.model import Blocker, CancelRequest, RunRequest
from tests.store.world import World

START = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
LONG = timedelta(minutes=15)


@pytest.fixture
def still(world: World) -> World:
    """A fixed time."""
    world.at = START
    return world


def ask(world: World, job: str) -> str:
    """A run that is a moment younger than the one before."""
    assert world.at is not None
    world.at += timedelta(milliseconds=1)
    return world.request(job)


def decide(world: World, shard: int = 0) -> list[str]:
    """A pass whose runs all start at once."""
    world.scheduler.run_pass(shard)
    claimed = [row["run_id"] for row in world.sql("SELECT run_id FROM runs WHERE status = 'claimed'")]
    for run_id in claimed:
        world.start(run_id)
    return claimed


def finish(world: World, run_id: str) -> None:
    world.finish(run_id, world.claim_of(run_id))


def later(world: World, by: timedelta = LONG) -> None:
    assert world.at is not None
    world.at += by


def only(world: World, run_id: str) -> Blocker:
    (blocker,) = world.runs.why(run_id).blockers
    return blocker


def of_shard(shard: int, count: int, prefix: str) -> list[str]:
    """Names of jobs that the second of two schedulers, or the first, decides."""
    names = (f"{prefix}{n}" for n in range(1_000))
    return [name for name in names if shard_of("cafe", "dev", name, 2) == shard][:count]


def test_a_stream_of_small_runs_does_not_starve_a_wide_one(still: World) -> None:
    still.publish({"wide": {"relations": ["a", "b"]}, "on_a": {"relations": ["a"]}, "on_b": {"relations": ["b"]}})
    small = ask(still, "on_a")
    decide(still)
    wide = ask(still, "wide")
    other = ask(still, "on_b")
    decide(still)
    assert (still.state(wide), still.state(other)) == ("queued", "running")  # the hold has not begun
    later(still)
    finish(still, other)
    again = ask(still, "on_b")
    decide(still)
    assert still.state(again) == "queued"
    blocker = only(still, again)
    assert (blocker.code, blocker.subject, blocker.detail["older"]) == ("held_for_older_run", "cafe/dev:b", wide)
    assert blocker.clears_when == f"run {wide} (queued), which waits longer and writes b, has had its turn"
    assert "It has waited long" in still.runs.why(wide).explanation
    finish(still, small)
    decide(still)
    assert (still.state(wide), still.state(again)) == ("running", "queued")
    assert only(still, again).code == "write_claim"
    finish(still, wide)
    decide(still)
    assert still.state(again) == "running"


def test_the_hold_reaches_over_the_batches_of_a_pass(still: World) -> None:
    jobs = {"holder": {"relations": ["b"]}, "wide": {"relations": ["a", "b"]}, "late": {"relations": ["a"]}}
    still.publish({**jobs, **{f"j{n}": {} for n in range(60)}})
    ask(still, "holder")
    decide(still)
    wide = ask(still, "wide")
    later(still)
    for n in range(60):
        ask(still, f"j{n}")
    late = ask(still, "late")
    assert len(decide(still)) == 60
    assert only(still, late).detail["older"] == wide


def test_the_hold_reaches_over_shards(still: World) -> None:
    (wide_job,), (late_job, holder_job) = of_shard(0, 1, "wide"), of_shard(1, 2, "late")
    still.scheduler.reshard(2)
    jobs = {holder_job: {"relations": ["b"]}, wide_job: {"relations": ["a", "b"]}, late_job: {"relations": ["a"]}}
    still.publish(jobs, shards=2)
    holder = ask(still, holder_job)
    decide(still, 1)
    wide = ask(still, wide_job)
    decide(still, 0)
    assert only(still, wide).detail["holder"] == holder
    later(still)  # and the wide run's own shard has not looked again
    late = ask(still, late_job)
    assert decide(still, 1) == []
    assert only(still, late).detail["older"] == wide
    finish(still, holder)
    assert len(decide(still, 0)) == 1
    finish(still, wide)
    assert len(decide(still, 1)) == 1
    assert still.state(late) == "running"


def test_a_wide_run_gets_its_slots_although_small_ones_come_all_the_time(still: World) -> None:
    still.publish(
        {
            "wide": {"pools": [{"name": "default", "weight": 9}]},
            **{f"small{n}": {"pools": [{"name": "default", "weight": 4}]} for n in range(4)},
        }
    )
    first = [ask(still, f"small{n}") for n in range(2)]
    decide(still)
    wide = ask(still, "wide")
    later(still)
    finish(still, first[0])
    younger = ask(still, "small2")
    decide(still)
    blocker = only(still, younger)
    assert (blocker.code, blocker.subject, blocker.detail["older"]) == ("held_for_older_run", "default", wide)
    assert "needs 9 of the pool default" in blocker.clears_when
    finish(still, first[1])
    decide(still)
    assert (still.state(wide), still.state(younger)) == ("running", "queued")
    finish(still, wide)
    decide(still)
    assert still.state(younger) == "running"


def test_two_old_runs_that_wait_for_different_things_both_get_their_turn(still: World) -> None:
    still.publish(
        {
            "one": {"relations": ["a", "shared"]},
            "two": {"relations": ["c", "shared"]},
            "on_a": {"relations": ["a"]},
            "on_c": {"relations": ["c"]},
        }
    )
    on_a, on_c = ask(still, "on_a"), ask(still, "on_c")
    decide(still)
    one, two = ask(still, "one"), ask(still, "two")
    later(still)
    decide(still)
    finish(still, on_c)
    decide(still)
    # what the younger lacked is free; it lets the older go first, which waits for a run that ends
    assert [(b.code, b.subject) for b in still.runs.why(two).blockers] == [("held_for_older_run", "cafe/dev:shared")]
    finish(still, on_a)
    decide(still)
    assert (still.state(one), still.state(two)) == ("running", "queued")
    finish(still, one)
    decide(still)
    assert still.state(two) == "running"


@pytest.mark.parametrize("way", ["cancelled", "disabled", "never_fits"])
def test_what_can_not_start_by_itself_holds_nobody_back(still: World, way: str) -> None:
    """A cancelled run, one of a disabled location, and one that its pool can never hold."""
    still.target("other", "dev")
    still.sql("UPDATE targets SET warehouse = 'shared'")
    still.publish({"holder": {"relations": ["b"]}, "small": {"relations": ["a"]}})
    wide_job = {"wide": {"relations": ["a", "b"], "pools": [{"name": "default", "weight": 3}]}}
    still.publish(wide_job, location="other", snapshot="c" * 64)
    ask(still, "holder")
    decide(still)
    wide = _wide(still)
    decide(still)
    later(still)
    small = ask(still, "small")
    decide(still)
    assert only(still, small).detail["older"] == wide
    if way == "cancelled":
        still.runs.cancel(wide, CancelRequest(cancel_id="can_0000000000000001"), "tester")
    elif way == "disabled":
        still.domains.locations.set_disabled("other", disabled=True)
    else:
        still.sql("UPDATE pools SET slot_limit = 2 WHERE pool = 'default'")
    decide(still)
    assert still.state(small) == "running"


def _wide(world: World) -> str:
    later(world, timedelta(milliseconds=1))
    request = RunRequest(run_id=world.ids.mint("run"))
    return world.runs.request("other", "dev", "wide", request, "tester")[0].run_id


def test_a_delayed_run_holds_nobody_back_before_it_has_waited_long(still: World) -> None:
    still.publish({"wide": {"relations": ["a", "b"]}, "holder": {"relations": ["b"]}, "small": {"relations": ["a"]}})
    ask(still, "holder")
    decide(still)
    wide = ask(still, "wide")
    decide(still)
    later(still)
    still.sql("UPDATE runs SET not_before = %s WHERE run_id = %s", still.at, wide)
    small = ask(still, "small")
    decide(still)
    assert still.state(small) == "running"


def test_the_hold_needs_nobody_to_wake_at_its_beginning(still: World) -> None:
    """Nothing is due at that moment: the shard sleeps on, and the next look at a younger run finds the hold."""
    still.publish({"holder": {"relations": ["b"]}, "wide": {"relations": ["a", "b"]}, "small": {"relations": ["a"]}})
    still.sql("UPDATE targets SET settle_seconds = 7200")
    holder = ask(still, "holder")
    decide(still)
    still.finish(holder, still.claim_of(holder), "failed", settled=False, reason="killed")
    wide = ask(still, "wide")
    decide(still)
    asleep_until = Hints(still.hints).read_all()[0].next_due / 1_000
    assert asleep_until > (START + LONG + timedelta(minutes=1)).timestamp()
    assert still.sql("SELECT blocked FROM runs WHERE run_id = %s", wide) == [{"blocked": True}]
    later(still)
    small = ask(still, "small")
    decide(still)
    assert only(still, small).detail["older"] == wide
