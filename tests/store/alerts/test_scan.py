"""What the platform scan of a pass tells people, once for as long as it lasts (scheduler.md 6.4)."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from chalicelib.alerts import AlertFact, open_alerts
from chalicelib.scheduler.scanning import Scan, skew_of, unscheduled
from tests.doubles import HandClock
from tests.store.scheduler.conftest import SIX
from tests.store.world import World, schedule

HALF_HOUR = 30 * 60
ORDERS = {"location": "cafe", "target": "dev", "job": "orders"}


def alerts(world: World, *conditions: str) -> list[tuple[str, str, str, bool]]:
    rows = world.sql(
        "SELECT condition, subject, episode, closed_at IS NULL AS open FROM platform_alerts ORDER BY first_seen_at, condition, subject, episode"
    )
    found = [(row["condition"], row["subject"], row["episode"], row["open"]) for row in rows]
    return [row for row in found if not conditions or row[0] in conditions]


def detail(world: World, condition: str) -> dict[str, Any]:
    (row,) = world.sql("SELECT detail FROM platform_alerts WHERE condition = %s", condition)
    found: dict[str, Any] = row["detail"]
    return found


def passed_after(world: World, clock: HandClock, seconds: float) -> None:
    clock.advance(seconds)
    world.run_pass()


# --- runs


def test_a_run_that_waits_for_half_an_hour_is_told_once_and_over_when_it_is_claimed(
    world: World, clock: HandClock
) -> None:
    world.publish({"orders": {"relations": ["a"]}, "items": {"relations": ["a"]}})
    holder = world.request("items")
    world.run_pass()
    claim_id = world.start(holder)
    run_id = world.request("orders")
    passed_after(world, clock, HALF_HOUR - 1)
    assert alerts(world, "run_waiting") == []
    for _ in range(3):
        passed_after(world, clock, 1)
        assert alerts(world, "run_waiting") == [("run_waiting", run_id, run_id, True)]
    assert detail(world, "run_waiting")["blockers"] == ["write_claim"]
    assert ORDERS.items() <= detail(world, "run_waiting").items()
    world.finish(holder, claim_id)
    world.run_pass()
    assert alerts(world, "run_waiting") == [("run_waiting", run_id, run_id, False)]


def test_a_run_that_may_not_start_yet_does_not_wait(world: World, clock: HandClock) -> None:
    world.publish({"orders": {}})
    run_id = world.request("orders")
    world.sql("UPDATE runs SET not_before = %s", SIX + timedelta(hours=1))
    passed_after(world, clock, HALF_HOUR + 60)
    assert alerts(world) == []
    world.sql("UPDATE locations SET disabled = true")
    passed_after(world, clock, HALF_HOUR)
    passed_after(world, clock, HALF_HOUR)
    assert alerts(world, "run_waiting") == [("run_waiting", run_id, run_id, True)]


def test_what_a_shrunk_pool_never_fits_is_told_at_once_and_once(world: World, clock: HandClock) -> None:
    """BR-091: the pool was made smaller after the job was published."""
    world.sql("INSERT INTO pools VALUES ('heavy', 2)")
    world.publish({"orders": {"pools": [{"name": "heavy", "weight": 3}]}})
    run_id = world.request("orders")
    world.run_pass()
    assert alerts(world) == [("run_waiting", run_id, run_id, True)]
    assert detail(world, "run_waiting")["blockers"] == ["pool_never_fits"]
    for _ in range(4):
        passed_after(world, clock, HALF_HOUR)
    assert alerts(world) == [("run_waiting", run_id, run_id, True)]
    world.sql("UPDATE pools SET slot_limit = 3 WHERE pool = 'heavy'")
    world.run_pass()
    assert alerts(world) == [("run_waiting", run_id, run_id, False)]


def test_the_hint_wakes_a_shard_whose_run_has_waited(world: World, clock: HandClock) -> None:
    world.publish({"orders": {}})
    world.sql("UPDATE locations SET disabled = true")
    world.request("orders")
    world.run_pass()
    hint = world.domains.hints.read_all()[0]
    assert hint.next_due == int((SIX + timedelta(seconds=HALF_HOUR)).timestamp() * 1000)
    clock.advance(HALF_HOUR)
    assert world.scheduler.minute()[0].led
    assert [row[0] for row in alerts(world)] == ["run_waiting"]


def test_a_launch_that_failed_is_told_until_a_run_of_the_job_starts(world: World, clock: HandClock) -> None:
    world.publish({"orders": {}})
    run_id = world.request("orders")
    world.run_pass()
    passed_after(world, clock, 901)
    world.run_pass()
    assert world.state(run_id) == "launch_failed"
    assert alerts(world, "launch_failed") == [("launch_failed", run_id, run_id, True)]
    assert detail(world, "launch_failed")["end_reason"] == "accept_timeout"
    clock.advance(60)
    again = world.request("orders")
    world.run_pass()
    assert alerts(world, "launch_failed")[0][3]
    world.start(again)
    passed_after(world, clock, 30)
    assert alerts(world, "launch_failed") == [("launch_failed", run_id, run_id, False)]
    for _ in range(3):
        passed_after(world, clock, 30)
    assert len(alerts(world, "launch_failed")) == 1


def test_a_launch_of_a_job_that_never_runs_again_is_over_after_a_week(world: World, clock: HandClock) -> None:
    world.publish({"orders": {}})
    world.request("orders")
    world.run_pass()
    passed_after(world, clock, 901)
    passed_after(world, clock, 6 * 86_400)
    assert alerts(world, "launch_failed")[0][3]
    passed_after(world, clock, 86_401)
    assert not alerts(world, "launch_failed")[0][3]


def test_a_dead_lettered_run_is_told_as_such(world: World) -> None:
    world.publish({"orders": {}})
    run_id = world.request("orders")
    world.run_pass()
    world.runs.dead_letter(run_id, world.claim_of(run_id))
    world.run_pass()
    world.run_pass()
    assert alerts(world) == [("launch_failed", run_id, run_id, True), ("queue_dead_letter", run_id, run_id, True)]


def test_what_ended_while_nobody_scheduled_is_told_by_the_next_pass(world: World, clock: HandClock) -> None:
    world.publish({"orders": {}})
    run_id = world.request("orders")
    world.run_pass()
    world.runs.dead_letter(run_id, world.claim_of(run_id))
    passed_after(world, clock, 3 * 86_400)
    assert [row[1] for row in alerts(world, "launch_failed")] == [run_id]


def test_a_run_past_its_time_limit_that_still_beats_is_overdue(world: World, clock: HandClock) -> None:
    world.publish({"orders": {"timeout_seconds": 60}})
    run_id = world.request("orders")
    world.run_pass()
    claim_id = world.start(run_id)
    passed_after(world, clock, 119)
    assert alerts(world) == []
    for _ in range(3):
        passed_after(world, clock, 1)
    assert alerts(world) == [("run_overdue", run_id, claim_id, True)]
    assert detail(world, "run_overdue")["timeout_seconds"] == 60
    world.finish(run_id, claim_id, "failed", reason="timed_out")
    world.run_pass()
    assert alerts(world) == [("run_overdue", run_id, claim_id, False)]


def test_a_silent_run_is_lost_and_not_overdue(world: World, clock: HandClock) -> None:
    world.publish({"orders": {"timeout_seconds": 60}})
    run_id = world.request("orders")
    world.run_pass()
    claim_id = world.start(run_id)
    passed_after(world, clock, 200)
    world.sql("UPDATE runs SET heartbeat_lost_at = %s", clock.now())
    world.database.write(lambda tx: open_alerts(tx, [AlertFact("run_lost", run_id, ORDERS, claim_id)]))
    world.run_pass()
    assert alerts(world) == [("run_lost", run_id, claim_id, True), ("run_overdue", run_id, claim_id, False)]
    world.runs.boot_ended("boot_0000000000000001")
    world.run_pass()
    assert alerts(world, "run_lost") == [("run_lost", run_id, claim_id, False)]


# --- schedules


def broken(world: World, trigger: str = "cafe/dev/orders/schedule") -> None:
    world.sql('UPDATE triggers SET spec = spec || \'{"cron": "not a cron"}\' WHERE trigger_id = %s', trigger)


def test_a_schedule_that_cannot_be_computed_is_told_once_and_stops_no_other(world: World, clock: HandClock) -> None:
    """S20."""
    jobs = {name: {"triggers": [schedule("* * * * *", name=f"{name}/schedule")]} for name in ("orders", "items")}
    world.publish(jobs)
    broken(world)
    for _ in range(5):
        passed_after(world, clock, 60)
    assert alerts(world) == [("schedule_uncomputable", "cafe/dev/orders/schedule", "1", True)]
    assert ORDERS.items() <= detail(world, "schedule_uncomputable").items()
    assert "not a cron" in detail(world, "schedule_uncomputable")["problem"]
    ticks = world.sql("SELECT trigger_id, count(*) AS n FROM ticks GROUP BY 1")
    assert ticks == [{"trigger_id": "cafe/dev/items/schedule", "n": 5}]


@pytest.mark.parametrize("cron", ["* * * * *", "0 3 1 1 *"])
def test_it_is_over_when_the_schedule_is_mended_and_new_when_it_breaks_again(
    world: World, clock: HandClock, cron: str
) -> None:
    world.publish({"orders": {"triggers": [schedule("* * * * *", name="orders/schedule")]}})
    broken(world)
    passed_after(world, clock, 60)
    world.sql("UPDATE triggers SET spec = spec || jsonb_build_object('cron', %s::text)", cron)
    passed_after(world, clock, 61)
    passed_after(world, clock, 61)
    trigger = "cafe/dev/orders/schedule"
    assert alerts(world) == [("schedule_uncomputable", trigger, "1", False)]
    broken(world)
    passed_after(world, clock, 400 * 86_400)
    assert alerts(world, "schedule_uncomputable")[1:] == [("schedule_uncomputable", trigger, "2", True)]
    world.sql("UPDATE trigger_state SET enabled = false")
    world.run_pass()
    assert not any(row[3] for row in alerts(world, "schedule_uncomputable"))


# --- the scheduler itself


def test_both_schedulers_stopped_for_four_minutes_is_seen_and_told(world: World, clock: HandClock) -> None:
    """BR-082: what can be seen while nothing runs is in the store; the next pass tells it and makes up for it."""
    world.publish({"orders": {"triggers": [schedule("* * * * *", name="orders/schedule")]}})
    world.run_pass()
    clock.advance(239)
    assert unscheduled(world.database) == []  # due for 179 s
    clock.advance(1)
    assert unscheduled(world.database) == [0]
    world.run_pass()
    assert unscheduled(world.database) == []
    assert alerts(world) == [("scheduler_late", "0", "1", False)]
    assert detail(world, "scheduler_late") == {
        "due_at": "2026-12-01T06:01:00.000000Z",
        "passed_at": "2026-12-01T06:00:00.000000Z",
    }
    for _ in range(3):
        passed_after(world, clock, 60)
    assert len(alerts(world)) == 1
    passed_after(world, clock, 600)
    assert [row[2] for row in alerts(world)] == ["1", "2"]


def test_a_shard_without_work_is_not_late_however_long_it_sleeps(world: World, clock: HandClock) -> None:
    world.publish({"orders": {}})
    world.run_pass()
    clock.advance(7 * 86_400)
    assert unscheduled(world.database) == []


@pytest.mark.parametrize("seen", [True, False])
def test_a_queued_run_is_work_only_until_a_finished_pass_has_looked_at_it(
    world: World, clock: HandClock, seen: bool
) -> None:
    world.publish({"orders": {}})
    world.sql("UPDATE locations SET disabled = true")
    world.run_pass()
    clock.advance(1)
    world.request("orders")
    if seen:
        world.run_pass()
    clock.advance(300)
    assert unscheduled(world.database) == ([] if seen else [0])


def test_a_claim_that_was_never_sent_is_work(world: World, clock: HandClock) -> None:
    world.publish({"orders": {}})
    world.request("orders")
    world.queues.broken = True
    with pytest.raises(Exception, match="SQS"):
        world.run_pass()
    world.queues.broken = False
    clock.advance(181)
    assert unscheduled(world.database) == [0]


def test_another_shard_that_stands_still_is_told_by_whoever_passes(world: World, clock: HandClock) -> None:
    world.scheduler.reshard(2)
    jobs = {f"j{n}": {"triggers": [schedule("* * * * *", name=f"j{n}/schedule")]} for n in range(8)}
    world.publish(jobs, shards=2)
    for shard in (0, 1):
        world.scheduler.visit(shard, "wake")
    for _ in range(8):
        clock.advance(60)
        world.scheduler.visit(0, "wake")
    assert alerts(world, "scheduler_late") == [("scheduler_late", "1", "1", True)]
    world.scheduler.visit(1, "wake")
    world.scheduler.visit(0, "wake")
    assert alerts(world, "scheduler_late") == [("scheduler_late", "1", "1", False)]


def test_a_clock_that_is_an_hour_ahead_fires_nothing_early_and_is_told(world: World, clock: HandClock) -> None:
    """BR-043: the database's clock decides; the clock of the one who schedules is only told to be wrong."""
    world.publish({"orders": {"triggers": [schedule("0 7 * * *", name="orders/schedule")]}})
    world.at = SIX
    clock.advance(3_600)
    for _ in range(3):
        world.run_pass()
    assert world.sql("SELECT * FROM ticks") == []
    assert alerts(world) == [("clock_skew", "0", "1", True)]
    assert detail(world, "clock_skew") == {"seconds": 3600.0}
    world.at = SIX + timedelta(hours=1)
    world.run_pass()
    world.run_pass()
    assert world.sql("SELECT count(*) AS n FROM ticks") == [{"n": 1}]
    assert alerts(world) == [("clock_skew", "0", "1", False)]


@pytest.mark.parametrize(
    ("before", "after", "skew"), [(0, 9, 0), (-3, 2, 0), (6, 7, 6), (-9, -7, -7), (0, 0, 0), (-20, 0, 0)]
)
def test_a_slow_answer_of_the_database_is_not_taken_for_a_wrong_clock(before: float, after: float, skew: float) -> None:
    assert skew_of(SIX + timedelta(seconds=before), SIX, SIX + timedelta(seconds=after)) == skew


def test_a_scan_costs_the_same_for_one_run_and_for_many(world: World, clock: HandClock) -> None:
    world.publish({f"j{n}": {"concurrency": 100} for n in range(4)})
    world.sql("UPDATE locations SET disabled = true")

    def statements() -> int:
        clock.advance(HALF_HOUR + 1)
        before, scan = world.database.statements, Scan(0)
        pass_now = world.database.write(scan.begin)
        world.database.write(lambda tx: scan.finish(tx, pass_now))
        return world.database.statements - before

    world.request("j0")
    few = statements()
    clock.advance(1)
    for n in range(40):
        world.request(f"j{n % 4}")
    assert statements() == few == 8
    assert len(alerts(world, "run_waiting")) == 41


@pytest.mark.parametrize("seed", range(4))
def test_no_condition_is_told_twice_in_a_random_history(world: World, clock: HandClock, seed: int) -> None:
    """S24: at each moment at most one alert of a condition and a subject is open, and an own id is one row for ever."""
    chance = random.Random(seed)
    world.publish({name: {"relations": ["a"], "timeout_seconds": 60} for name in ("orders", "items")})
    running: dict[str, str] = {}
    for _ in range(25):
        step = chance.choice(["request", "start", "finish", "wait", "lose", "pass"])
        if step == "request":
            world.request(chance.choice(["orders", "items"]))
        elif step == "start":
            claimed = [row["run_id"] for row in world.sql("SELECT run_id FROM runs WHERE status = 'claimed'")]
            running.update({run: world.start(run) for run in claimed})
        elif step == "finish" and running:
            run, claim = running.popitem()
            world.finish(run, claim)
        elif step == "lose":
            world.sql("UPDATE runs SET heartbeat_lost_at = %s WHERE status = 'running'", clock.now())
        passed_after(world, clock, chance.choice([1, 60, 899, HALF_HOUR + 1]))
        running = {run: claim for run, claim in running.items() if world.state(run) == "running"}
        open_rows = [row[:2] for row in alerts(world) if row[3]]
        assert len(open_rows) == len(set(open_rows))
        own = [row[:2] for row in alerts(world) if row[0] in {"launch_failed", "run_waiting", "run_overdue"}]
        assert len(own) == len(set(own))
