"""Looking ahead, due messages, time limits, and several shards (scheduler.md 5.6)."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from chalicelib.kernel.clock import instant_text
from chalicelib.kernel.errors import InvalidRequest
from chalicelib.leases.hints import Hints
from tests.doubles import HandClock
from tests.store.scheduler.conftest import SIX
from tests.store.world import World, schedule

EVERY_MINUTE = {"orders": {"triggers": [schedule("* * * * *", name="orders/schedule")]}}


def messages(world: World, kind: str) -> list[Any]:
    sent = [json.loads(body) for body in world.queues.sent.get("tick", [])]
    return [message for message in sent if message["kind"] == kind]


def due(instant: datetime) -> dict[str, Any]:
    return {"v": 1, "shard": 0, "kind": "due", "due_at": instant_text(instant)}


def test_a_pass_sends_one_message_for_each_due_second_ahead(world: World, clock: HandClock) -> None:
    world.publish(EVERY_MINUTE)
    world.run_pass()
    assert messages(world, "due") == [due(SIX + timedelta(minutes=1))]
    world.run_pass()
    assert len(messages(world, "due")) == 1
    clock.advance(60)
    result = world.scheduler.visit(0, "due", SIX + timedelta(minutes=1))
    assert result.requested == 1
    # the next one, and the platform scan while that run is active
    assert messages(world, "due")[1:] == [due(SIX + timedelta(seconds=90)), due(SIX + timedelta(minutes=2))]


def test_look_ahead_makes_no_second_message_under_another_epoch(world: World) -> None:
    """C12: the key is the shard and the second, whatever the epoch."""
    world.publish(EVERY_MINUTE)
    for _ in range(3):
        world.run_pass()
    assert world.sql("SELECT count(*) AS n FROM due_messages") == [{"n": 1}]
    assert world.sql("SELECT epoch FROM scheduler_shards") == [{"epoch": 3}]


def test_a_message_up_to_two_seconds_early_waits_and_then_ticks(world: World, clock: HandClock) -> None:
    world.publish(EVERY_MINUTE)
    clock.advance(58.5)
    result = world.scheduler.visit(0, "due", SIX + timedelta(minutes=1))
    assert (result.led, result.requested) == (True, 1)
    assert clock.now() == SIX + timedelta(minutes=1)


def test_a_message_that_comes_earlier_is_sent_again(world: World, clock: HandClock) -> None:
    world.publish(EVERY_MINUTE)
    clock.advance(30)
    assert world.scheduler.visit(0, "due", SIX + timedelta(minutes=1)).led is False
    assert messages(world, "due") == [due(SIX + timedelta(minutes=1))]


def test_a_lost_look_ahead_message_costs_at_most_a_minute(world: World, clock: HandClock) -> None:
    world.publish(EVERY_MINUTE)
    world.scheduler.minute()
    clock.advance(119)
    assert [result.requested for result in world.scheduler.minute()] == [1]


def test_old_look_ahead_rows_are_removed(world: World, clock: HandClock) -> None:
    world.publish(EVERY_MINUTE)
    world.run_pass()
    clock.advance(2 * 3_600)
    world.run_pass()
    rows = world.sql("SELECT due_second FROM due_messages ORDER BY 1")
    assert rows == [{"due_second": SIX + timedelta(hours=2, seconds=seconds)} for seconds in (30, 60)]


def test_a_visit_out_of_time_releases_and_sends_itself_a_message(application_url: str) -> None:
    class Running(HandClock):
        """Every look at the stopwatch costs 20 s."""

        def elapsed_seconds(self) -> float:
            self.advance(20)
            return super().elapsed_seconds()

    world = World(application_url, clock=Running(SIX))
    world.target()
    jobs = {f"j{i}": {"triggers": [schedule("* * * * *", name=f"j{i}/schedule")]} for i in range(3)}
    world.publish(jobs)
    world.queues.sent.clear()
    assert world.scheduler.visit(0, "wake").led is True
    assert messages(world, "wake") == [{"v": 1, "shard": 0, "kind": "wake"}]
    assert world.leases.items["sched#0", "lease"]["owner_token"] == ""
    world.close()


def test_two_shards_side_by_side_each_do_their_own(world: World, clock: HandClock) -> None:
    assert world.scheduler.reshard(2) == [0, 1]
    jobs = {
        f"j{i}": {"triggers": [schedule("* * * * *", name=f"j{i}/schedule")], "relations": [f"r{i}"]} for i in range(12)
    }
    world.publish(jobs, shards=2)
    clock.advance(60)
    results = [world.scheduler.visit(shard, "due") for shard in (0, 1)]
    assert all(result.requested > 0 for result in results)
    assert sum(result.requested for result in results) == 12
    rows = world.sql(
        "SELECT r.shard AS run, s.shard AS trigger FROM runs r JOIN trigger_state s ON s.trigger_id = r.trigger_id"
    )
    assert all(row["run"] == row["trigger"] for row in rows)


def test_what_a_run_frees_wakes_the_shard_that_waits_for_it(world: World) -> None:
    world.scheduler.reshard(4)
    world.publish({f"j{i}": {"relations": ["shared"]} for i in range(8)}, shards=4)
    runs = [world.request(f"j{i}") for i in range(8)]
    for shard in range(4):
        world.scheduler.visit(shard, "wake")
    (holder,) = [run for run in runs if world.state(run) == "claimed"]
    waiting = {row["shard"] for row in world.sql("SELECT DISTINCT shard FROM runs WHERE status = 'queued'")}
    claim_id = world.start(holder)
    world.queues.sent.clear()
    world.finish(holder, claim_id)
    assert waiting <= {message["shard"] for message in messages(world, "wake")}
    assert len(waiting) > 1


def test_resharding_moves_jobs_triggers_and_unfinished_runs_and_fences_everybody(world: World) -> None:
    jobs = {f"j{i}": {"triggers": [schedule("0 * * * *", name=f"j{i}/schedule")]} for i in range(20)}
    world.publish(jobs)
    for i in range(20):
        world.request(f"j{i}")
    leader = world.leader()
    world.scheduler.reshard(5)
    from chalicelib.leases.fence import Fenced

    with pytest.raises(Fenced):
        leader.write(lambda tx: tx.now)
    rows = world.sql(
        "SELECT j.job, j.shard AS job_shard, s.shard AS trigger_shard, r.shard AS run_shard FROM jobs j "
        "JOIN triggers t USING (location, target, job) JOIN trigger_state s USING (trigger_id) JOIN runs r USING (location, target, job)"
    )
    assert len(rows) == 20
    assert all(row["job_shard"] == row["trigger_shard"] == row["run_shard"] for row in rows)
    assert {row["job_shard"] for row in rows} == {0, 1, 2, 3, 4}
    assert world.sql("SELECT shard FROM scheduler_shards ORDER BY shard") == [{"shard": n} for n in range(5)]
    world.leases.items.clear()
    claimed = [claim for shard in range(5) for claim in world.scheduler.visit(shard, "wake").claimed]
    assert len(claimed) == 20


def test_resharding_back_forgets_the_shards_that_are_no_more(world: World) -> None:
    world.scheduler.reshard(3)
    world.scheduler.reshard(1)
    assert sorted(Hints(world.hints).read_all()) == [0]
    assert world.scheduler.visit(2, "minute").led is False
    assert world.scheduler.visit(0, "minute").led is True


@pytest.mark.parametrize("count", [0, -1, 101])
def test_a_number_of_shards_out_of_bounds_is_refused(world: World, count: int) -> None:
    with pytest.raises(InvalidRequest, match="count"):
        world.scheduler.reshard(count)
