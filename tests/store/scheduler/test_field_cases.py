"""Ticks, clocks and two schedulers as users of other schedulers met them (section 2 of the field cases)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from chalicelib.leases.fence import Fenced
from tests.doubles import HandClock
from tests.store.scheduler.conftest import SIX
from tests.store.world import World, schedule

EVERY_MINUTE = {"orders": {"triggers": [schedule("* * * * *", name="orders/schedule")]}}


def ticks(world: World) -> int:
    return int(world.sql("SELECT count(*) AS n FROM ticks")[0]["n"])


@pytest.mark.parametrize("hours", [1, -1])
def test_br_043_a_node_whose_clock_is_an_hour_off_ticks_by_the_database(
    world: World, clock: HandClock, caplog: pytest.LogCaptureFixture, hours: int
) -> None:
    """The node's clock decides nothing but whether to look, and the skew is said."""
    world.publish({"orders": {"triggers": [schedule("0 7 * * *", name="orders/schedule")]}})
    clock.advance(hours * 3_600)
    world.at = SIX
    assert world.run_pass() == []
    assert ticks(world) == 0
    assert "clock_skew" in caplog.text
    world.at = SIX + timedelta(hours=1)
    world.run_pass()
    world.run_pass()
    assert ticks(world) == 1


def test_br_044_the_same_minute_tick_in_two_threads_makes_each_run_once(world: World, clock: HandClock) -> None:
    world.publish({f"j{i}": {"triggers": [schedule("0 7 * * *", name=f"j{i}/schedule")]} for i in range(500)})
    clock.advance(3_600)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: world.scheduler.run_pass(0), range(2)))
    assert world.sql("SELECT count(*) AS n FROM runs") == [{"n": 500}]


def test_br_068_br_080_twenty_racers_have_one_winner_and_nineteen_clean_refusals(world: World) -> None:
    with ThreadPoolExecutor(20) as pool:
        leaders = list(pool.map(lambda _: world.lead(), range(20)))
    assert sum(leader is not None for leader in leaders) == 1
    assert world.sql("SELECT epoch FROM scheduler_shards") == [{"epoch": 1}]


def test_br_079_a_lease_whose_time_to_live_is_over_is_not_taken_for_that(world: World) -> None:
    """No attribute of time decides: an item stays its owner's until it was seen not to move for a whole lease."""
    world.leader()
    world.leases.items["sched#0", "lease"]["tidy_at"] = 1
    assert world.lead() is None


def test_br_073_two_tickers_and_two_hundred_schedules_over_many_rounds(world: World, clock: HandClock) -> None:
    world.publish({f"j{i}": {"triggers": [schedule("* * * * *", name=f"j{i}/schedule")]} for i in range(200)})
    world.sql("UPDATE locations SET disabled = true")
    for _ in range(5):
        clock.advance(60)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: world.scheduler.run_pass(0), range(2)))
    assert world.sql("SELECT count(*) AS n, count(DISTINCT (trigger_id, scheduled_for)) AS slots FROM ticks") == [
        {"n": 1_000, "slots": 1_000}
    ]


def test_br_073_an_injected_deadlock_is_repeated(world: World) -> None:
    """The database kills one of two transactions that wait for each other; the operation is repeated and commits."""
    attempts = 0

    def deadlocked(tx: object) -> str:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise psycopg.errors.DeadlockDetected("deadlock detected")
        return "done"

    assert world.leader().write(deadlocked) == "done"
    assert attempts == 2


def test_br_074_connections_killed_in_mid_flight_are_replaced(world: World, clock: HandClock, store_url: str) -> None:
    """The pool checks what it lends: nothing is poisoned, and the next pass works without a restart."""
    world.publish(EVERY_MINUTE)
    world.run_pass()
    with psycopg.connect(store_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidemill' AND datname = current_database()"
        )
    clock.advance(60)
    assert len(world.run_pass()) == 1


def test_br_082_a_leader_that_stalls_is_replaced_and_goes_on_without_a_duplicate(
    world: World, clock: HandClock
) -> None:
    """Two tickers; the leader is paused for longer than its lease and wakes up in the middle of its pass."""
    world.publish(EVERY_MINUTE)
    stalled = world.leader()
    clock.advance(60)
    (result,) = world.scheduler.minute()
    assert (result.led, result.requested) == (True, 1)
    with pytest.raises(Fenced):
        world.schedules.evaluate_batch(stalled.write, 0, clock.now(), (SIX - timedelta(days=1), ""))
    clock.advance(60)
    assert world.scheduler.minute()[0].led
    assert ticks(world) == 2


def test_br_082_no_tick_is_missed_through_the_night_of_a_clock_change(world: World, clock: HandClock) -> None:
    """Leases count elapsed time: nothing about them changes when local clocks do."""
    world.publish({"orders": {"triggers": [schedule("*/10 * * * *", "America/New_York", name="orders/schedule")]}})
    world.sql("UPDATE locations SET disabled = true")
    for _ in range(120):
        clock.advance(60)
        assert all(result.led for result in world.scheduler.minute())
    assert ticks(world) == 12
