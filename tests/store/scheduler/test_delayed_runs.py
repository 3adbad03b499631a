"""A delayed run starts at its second: the shard sleeps until then and no longer (5.6, 5.7)."""

from __future__ import annotations

from datetime import timedelta

from chalicelib.leases.hints import Hints
from chalicelib.scheduler.hinting import raise_hint, watch_writers
from tests.doubles import HandClock
from tests.store.scheduler.conftest import SIX
from tests.store.world import World


def next_due(world: World) -> float:
    """Seconds from six o'clock until the shard is looked at."""
    return Hints(world.hints).read_all()[0].next_due / 1_000 - SIX.timestamp()


def delayed(world: World, seconds: float) -> str:
    run_id = world.request("orders")
    world.sql("UPDATE runs SET not_before = %s WHERE run_id = %s", SIX + timedelta(seconds=seconds), run_id)
    return run_id


def test_the_shard_sleeps_until_a_delayed_run_is_due(world: World, clock: HandClock) -> None:
    world.publish({"orders": {"relations": ["a"]}})
    run_id = delayed(world, 1_000)
    world.run_pass()
    assert (world.state(run_id), next_due(world)) == ("queued", 1_000)
    clock.sleep(1_000)
    world.run_pass()
    assert world.state(run_id) == "claimed"


def test_a_message_is_sent_ahead_for_the_second_of_a_delayed_run(world: World) -> None:
    world.publish({"orders": {}})
    delayed(world, 60)
    assert world.scheduler.run_pass(0).due_ahead == [SIX + timedelta(seconds=60)]
    assert world.scheduler.run_pass(0).due_ahead == []


def test_a_run_that_becomes_due_while_a_pass_ends_is_not_slept_over(world: World, clock: HandClock) -> None:
    world.publish({"orders": {}})
    delayed(world, 5)
    leader, hints = world.leader(), Hints(world.hints)
    generation, began_at = watch_writers(leader, hints), clock.now()
    clock.sleep(10)
    assert raise_hint(leader, hints, generation, began_at)
    assert next_due(world) == 5


def test_one_that_is_due_and_waits_for_something_else_keeps_no_shard_awake(world: World, clock: HandClock) -> None:
    world.sql("UPDATE targets SET settle_seconds = 1500")
    world.publish({"holder": {"relations": ["a"]}, "orders": {"relations": ["a"]}})
    holder = world.request("holder")
    world.run_pass()
    world.finish(holder, world.start(holder), "failed", settled=False, reason="killed")
    waiting = delayed(world, 60)
    clock.sleep(60)
    world.run_pass()
    assert world.state(waiting) == "queued"
    assert next_due(world) == 1_500
