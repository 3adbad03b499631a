"""Ticks on a real store: each occurrence once, whatever is delivered twice, late, edited or stopped (S14 to S21)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chalicelib.database import Query, load_queries
from chalicelib.kernel.errors import IdReused, InvalidRequest, NotFound
from chalicelib.runs.model import CancelRequest
from tests.store.world import World, schedule

SIX = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
NAME = "orders/schedule"


def with_schedule(cron: str, zone: str = "UTC", **more: Any) -> dict[str, Any]:
    return {"orders": {"triggers": [schedule(cron, zone, name=NAME, **more)]}}


def at(world: World, moment: datetime) -> World:
    world.at = moment
    return world


def ticks(world: World, name: str = NAME) -> list[Any]:
    return list(world.schedules.ticks("cafe", "dev", name, 200, None).items)


def run_states(world: World) -> list[str]:
    return [row["status"] for row in world.sql("SELECT status FROM runs ORDER BY created_at, run_id")]


def test_a_due_schedule_gets_one_tick_and_one_run(world: World) -> None:
    at(world, SIX - timedelta(seconds=30)).publish(with_schedule("0 * * * *"))
    world.run_pass()
    assert ticks(world) == []
    at(world, SIX + timedelta(seconds=1.2))
    world.run_pass()
    world.run_pass()
    (tick,) = ticks(world)
    assert (tick.outcome, tick.scheduled_for, tick.local_slot, tick.skipped) == (
        "requested",
        SIX,
        "2026-12-01T06:00",
        0,
    )
    assert tick.lateness_seconds == pytest.approx(1.2)
    run = world.runs.run(tick.run_id)
    assert (run.origin, run.trigger, run.scheduled_for, run.state) == ("schedule", NAME, SIX, "claimed")


def test_the_same_tick_in_many_threads_makes_one_run_each(world: World) -> None:
    """BR-044, BR-073: 500 due schedules, passes at once, in any order."""
    at(world, SIX - timedelta(seconds=1)).publish(
        {f"j{i}": {"triggers": [schedule("0 6 * * *", name=f"j{i}/schedule")]} for i in range(500)}
    )
    at(world, SIX)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: world.scheduler.run_pass(0), range(8)))
    assert world.sql(
        "SELECT count(*) AS n, count(DISTINCT trigger_id) AS triggers, count(DISTINCT run_id) AS runs FROM ticks"
    ) == [{"n": 500, "triggers": 500, "runs": 500}]
    assert world.sql("SELECT count(*) AS n FROM runs") == [{"n": 500}]


def test_a_pass_over_many_due_schedules_costs_a_bounded_number_of_statements(world: World) -> None:
    at(world, SIX - timedelta(seconds=1)).publish(
        {f"j{i}": {"triggers": [schedule("0 6 * * *", name=f"j{i}/schedule")]} for i in range(200)}
    )
    at(world, SIX)
    write = world.leader().write
    before = world.database.statements
    world.schedules.evaluate_batch(write, 0, SIX, (datetime(1, 1, 1, tzinfo=UTC), ""))
    assert world.database.statements - before <= 8


def test_after_an_outage_the_latest_occurrence_runs_and_the_missed_are_counted(world: World) -> None:
    """BR-037, BR-040: no dead state, no flood; the missed count is shown."""
    at(world, SIX - timedelta(minutes=1)).publish(with_schedule("* * * * *"))
    at(world, SIX + timedelta(hours=3, seconds=7))
    world.run_pass()
    (tick,) = ticks(world)
    assert (tick.scheduled_for, tick.skipped) == (SIX + timedelta(hours=3), 180)
    at(world, SIX + timedelta(days=30))
    world.run_pass()
    assert ticks(world)[0].skipped == 1_000


def test_a_slot_that_is_evaluated_late_still_runs(world: World) -> None:
    """BR-034, BR-035: there is no grace time; the latest due occurrence is always ticked and its lateness recorded."""
    at(world, SIX - timedelta(minutes=5)).publish(with_schedule("0 6 * * *"))
    at(world, SIX + timedelta(seconds=30))
    world.run_pass()
    assert [(t.scheduled_for, t.lateness_seconds) for t in ticks(world)] == [(SIX, 30.0)]


def test_a_new_schedule_starts_at_its_creation_and_a_restart_keeps_the_cursor(world: World) -> None:
    """BR-037: created at 23:55 fires once at 00:00 and not before."""
    midnight = datetime(2026, 12, 2, tzinfo=UTC)
    at(world, midnight - timedelta(minutes=5)).publish(with_schedule("0 0 * * *"))
    world.run_pass()
    assert ticks(world) == []
    for minute in range(3):
        at(world, midnight + timedelta(minutes=minute)).run_pass()
    assert [t.scheduled_for for t in ticks(world)] == [midnight]


def test_an_edit_acts_only_on_what_follows_it(world: World) -> None:
    """BR-031: Wednesday 01:15 ran; at 09:00 it becomes 02:15; nothing runs before Thursday 02:15."""
    wednesday = datetime(2026, 12, 2, tzinfo=UTC)
    at(world, wednesday).publish(with_schedule("15 1 * * 1-5"))
    at(world, wednesday + timedelta(hours=1, minutes=15)).run_pass()
    at(world, wednesday + timedelta(hours=9)).publish(with_schedule("15 2 * * 1-5"), snapshot="c" * 64)
    at(world, wednesday + timedelta(hours=9, minutes=1)).run_pass()
    assert len(ticks(world)) == 1
    assert world.schedules.trigger("cafe", "dev", NAME).next_at == wednesday + timedelta(days=1, hours=2, minutes=15)
    at(world, wednesday + timedelta(days=1, hours=2, minutes=15)).run_pass()
    assert len(ticks(world)) == 2


def test_an_identical_save_while_a_slot_is_due_loses_nothing(world: World) -> None:
    """BR-032: saved again at 12:20:10, the slot 12:20 still runs once."""
    noon = datetime(2026, 12, 1, 12, 19, tzinfo=UTC)
    at(world, noon).publish(with_schedule("*/5 * * * *"))
    at(world, noon + timedelta(seconds=70)).publish(with_schedule("*/5 * * * *"), snapshot="c" * 64)
    at(world, noon + timedelta(seconds=100)).run_pass()
    assert [t.scheduled_for for t in ticks(world)] == [noon + timedelta(minutes=1)]


def test_publication_keeps_an_operators_choice_and_removes_what_is_gone(world: World) -> None:
    at(world, SIX).publish(with_schedule("0 * * * *"))
    world.schedules.set_enabled("cafe", "dev", NAME, enabled=False, request_id="req_0000000000000001")
    world.publish(with_schedule("0 * * * *"), snapshot="c" * 64)
    assert world.schedules.trigger("cafe", "dev", NAME).enabled is False
    world.publish({"orders": {}}, snapshot="e" * 64)
    with pytest.raises(NotFound, match=NAME):
        world.schedules.trigger("cafe", "dev", NAME)


@pytest.mark.parametrize(("on_resume", "expected"), [("none", 0), ("run_latest", 1)])
def test_enabling_again_starts_now_or_with_the_latest_missed(world: World, on_resume: str, expected: int) -> None:
    at(world, SIX - timedelta(minutes=1)).publish(with_schedule("0 * * * *", on_resume=on_resume))
    world.schedules.set_enabled("cafe", "dev", NAME, enabled=False, request_id="req_0000000000000001")
    at(world, SIX + timedelta(hours=3)).run_pass()
    assert ticks(world) == []
    at(world, SIX + timedelta(hours=3, minutes=30))
    world.schedules.set_enabled("cafe", "dev", NAME, enabled=True, request_id="req_0000000000000002")
    world.run_pass()
    assert len(ticks(world)) == expected
    at(world, SIX + timedelta(hours=4)).run_pass()
    assert len(ticks(world)) == expected + 1


def test_the_same_switch_request_gives_the_same_answer(world: World) -> None:
    at(world, SIX).publish(with_schedule("0 * * * *"))
    key = {"request_id": "req_0000000000000001"}
    first = world.schedules.set_enabled("cafe", "dev", NAME, enabled=False, **key)
    world.schedules.set_enabled("cafe", "dev", NAME, enabled=True, request_id="req_0000000000000002")
    assert world.schedules.set_enabled("cafe", "dev", NAME, enabled=False, **key) == first
    assert world.schedules.trigger("cafe", "dev", NAME).enabled is True
    with pytest.raises(IdReused):
        world.schedules.set_enabled("cafe", "dev", NAME, enabled=True, **key)


def test_a_waiting_run_covers_the_next_ticks_and_a_claimed_one_does_not(world: World) -> None:
    world.sql("UPDATE locations SET disabled = true")
    at(world, SIX - timedelta(seconds=1)).publish(with_schedule("* * * * *"))
    for minute in range(3):
        at(world, SIX + timedelta(minutes=minute)).run_pass()
    newest, middle, first = ticks(world)
    assert [t.outcome for t in (first, middle, newest)] == ["requested", "covered", "covered"]
    assert middle.covered_by == newest.covered_by == first.run_id
    world.sql("UPDATE locations SET disabled = false")
    world.run_pass()
    at(world, SIX + timedelta(minutes=3)).run_pass()
    assert ticks(world)[0].outcome == "requested"
    assert run_states(world) == ["claimed", "queued"]


def test_a_manual_run_covers_and_moves_no_cursor(world: World) -> None:
    """S21, BR-013: a manual run never moves the schedule."""
    world.sql("UPDATE locations SET disabled = true")
    at(world, SIX - timedelta(minutes=10)).publish(with_schedule("0 * * * *"))
    before = world.schedules.trigger("cafe", "dev", NAME).next_at
    manual = world.request("orders")
    assert world.schedules.trigger("cafe", "dev", NAME).next_at == before == SIX
    at(world, SIX).run_pass()
    assert [(t.outcome, t.covered_by) for t in ticks(world)] == [("covered", manual)]


def test_other_inputs_do_not_cover(world: World) -> None:
    world.sql("UPDATE locations SET disabled = true")
    day = {"day": {"type": "datetime", "default_from": "scheduled_for", "maps_to": "var"}}
    jobs = with_schedule("* * * * *")
    jobs["orders"]["inputs"] = day
    at(world, SIX - timedelta(seconds=1)).publish(jobs)
    for minute in range(2):
        at(world, SIX + timedelta(minutes=minute)).run_pass()
    assert [t.outcome for t in ticks(world)] == ["requested", "requested"]
    pinned = [row["inputs_json"]["day"] for row in world.sql("SELECT inputs_json FROM runs ORDER BY created_at")]
    assert pinned == ["2026-12-01T06:00:00.000000Z", "2026-12-01T06:01:00.000000Z"]


def test_two_schedules_of_one_job_due_together_make_one_run(world: World) -> None:
    both = [schedule("0 6 * * *", name="orders/a"), schedule("0 */6 * * *", name="orders/b")]
    at(world, SIX - timedelta(seconds=1)).publish({"orders": {"triggers": both}})
    at(world, SIX).run_pass()
    (first,), (second,) = ticks(world, "orders/a"), ticks(world, "orders/b")
    assert sorted([first.outcome, second.outcome]) == ["covered", "requested"]
    assert {first.run_id, second.run_id} - {None} == {first.covered_by, second.covered_by} - {None}


def test_a_tick_that_exists_only_moves_the_cursor_and_covers_nobody(world: World) -> None:
    both = [schedule("0 6 * * *", name="orders/a"), schedule("0 */6 * * *", name="orders/b")]
    at(world, SIX - timedelta(seconds=1)).publish({"orders": {"triggers": both}})
    world.sql(
        "INSERT INTO ticks VALUES ('cafe/dev/orders/a', '2026-12-01T06:00', %s, 'requested', 'run_of_before', NULL, %s, 0, 0)",
        SIX, SIX,
    )  # fmt: skip
    at(world, SIX).run_pass()
    (tick,) = ticks(world, "orders/b")
    assert tick.outcome == "requested"
    assert world.state(tick.run_id) == "claimed"
    assert world.sql("SELECT count(*) AS n FROM runs") == [{"n": 1}]
    assert world.scheduler.run_pass(0).ticked == 0


def test_cancelling_the_covering_run_lists_what_it_covered(world: World) -> None:
    world.sql("UPDATE locations SET disabled = true")
    at(world, SIX - timedelta(seconds=1)).publish(with_schedule("* * * * *"))
    for minute in range(2):
        at(world, SIX + timedelta(minutes=minute)).run_pass()
    covering = ticks(world)[0].covered_by
    answer = world.runs.cancel(covering, CancelRequest(cancel_id="can_0000000000000001"), "tester")
    assert answer.covered_ticks == [{"trigger": f"cafe/dev/{NAME}", "scheduled_for": "2026-12-01T06:01:00.000000Z"}]


def test_a_covering_run_that_never_started_hands_its_latest_tick_to_a_new_run(world: World) -> None:
    world.sql("UPDATE locations SET disabled = true")
    at(world, SIX - timedelta(seconds=1)).publish(with_schedule("* * * * *"))
    for minute in range(3):
        at(world, SIX + timedelta(minutes=minute)).run_pass()
    world.sql("UPDATE locations SET disabled = false")
    world.run_pass()
    world.schedules.set_enabled("cafe", "dev", NAME, enabled=True, request_id="req_0000000000000001")
    # the schedule keeps ticking; only the run of 06:00 runs into its accept deadline
    world.sql("UPDATE trigger_state SET next_at = NULL")
    at(world, SIX + timedelta(minutes=30)).run_pass()
    newest, middle, first = ticks(world)
    assert world.state(first.run_id) == "launch_failed"
    assert (middle.outcome, middle.covered_by) == ("covered", first.run_id)
    assert newest.outcome == "requested"
    replacement = world.runs.run(newest.run_id)
    assert (replacement.origin, replacement.trigger, replacement.scheduled_for) == (
        "schedule",
        NAME,
        SIX + timedelta(minutes=2),
    )


def test_one_bad_schedule_does_not_stop_the_others(world: World) -> None:
    """S20: a spec that no release could have published, as an older release may have left it."""
    at(world, SIX - timedelta(seconds=1)).publish(
        {"bad": {"triggers": [schedule("0 6 * * *", name="bad/schedule")]}, **with_schedule("0 6 * * *")}
    )
    world.sql("UPDATE triggers SET spec = %s WHERE job = 'bad'", '{"cron": "61 * * * *", "timezone": "UTC"}')
    at(world, SIX).run_pass()
    assert len(ticks(world)) == 1
    assert ticks(world, "bad/schedule") == []
    assert world.scheduler.run_pass(0).ticked == 0


def test_deleting_old_ticks_never_causes_a_tick(world: World) -> None:
    """S19: the cursor is on the state row, not in the ticks."""
    at(world, SIX - timedelta(seconds=1)).publish(with_schedule("0 6 * * *"))
    at(world, SIX).run_pass()
    world.sql("UPDATE ticks SET trigger_id = 'gone'")
    at(world, SIX + timedelta(hours=5)).run_pass()
    assert ticks(world) == []


def test_a_repeated_local_time_runs_once_and_a_frequent_one_every_time(world: World) -> None:
    """BR-002: 1 November in New York, tick every minute from 05:00Z to 07:00Z."""
    start = datetime(2026, 11, 1, 4, 59, tzinfo=UTC)
    triggers = [
        schedule("30 1 * * *", "America/New_York", name="orders/fixed"),
        schedule("30 * * * *", "America/New_York", name="orders/hourly"),
    ]
    world.sql("UPDATE locations SET disabled = true")
    at(world, start).publish({"orders": {"triggers": triggers}})
    for minute in range(122):
        at(world, start + timedelta(minutes=minute)).run_pass()
    assert [t.scheduled_for.hour for t in ticks(world, "orders/fixed")] == [5]
    hourly = ticks(world, "orders/hourly")
    assert [(t.scheduled_for.hour, t.local_slot) for t in hourly] == [(6, "2026-11-01T01:30"), (5, "2026-11-01T01:30")]


def test_midnight_load_in_overlapping_passes_is_ticked_exactly_once(world: World) -> None:
    """BR-041: 1,000 schedules at 00:00, overlapping passes, and one that dies half-way."""
    midnight = datetime(2026, 12, 2, tzinfo=UTC)
    at(world, midnight - timedelta(minutes=1)).publish(
        {f"j{i}": {"triggers": [schedule("0 0 * * *", name=f"j{i}/schedule")]} for i in range(1_000)}
    )
    at(world, midnight + timedelta(seconds=90))
    dying = world.leader()
    for _ in range(2):  # a pass that died after two batches of 200
        world.schedules.evaluate_batch(dying.write, 0, world.at or midnight, (datetime(1, 1, 1, tzinfo=UTC), ""))
    dying.release(None)  # else another takes over when a whole lease has passed
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: world.scheduler.run_pass(0), range(3)))
    assert world.sql(
        "SELECT count(*) AS n, count(DISTINCT trigger_id) AS t, min(scheduled_for) = max(scheduled_for) AS one FROM ticks"
    ) == [{"n": 1_000, "t": 1_000, "one": True}]
    assert world.sql("SELECT count(*) AS n FROM runs WHERE origin = 'schedule'") == [{"n": 1_000}]


def test_preview_is_what_the_scheduler_does(world: World) -> None:
    at(world, datetime(2026, 3, 7, tzinfo=UTC)).publish(with_schedule("30 2 * * *", "America/New_York"))
    shown = world.schedules.preview_of("cafe", "dev", NAME, None, 3).occurrences
    done = []
    for hour in range(24 * 3):
        at(world, datetime(2026, 3, 7, tzinfo=UTC) + timedelta(hours=hour, minutes=59)).run_pass()
    done = [t.scheduled_for for t in ticks(world)][::-1]
    assert [o.scheduled_for for o in shown] == done
    assert [o.zone_change for o in shown] == [False, True, False]
    with pytest.raises(InvalidRequest, match="count"):
        world.schedules.preview("* * * * *", "UTC", None, 0)


def test_sensors_are_stored_and_never_due(world: World) -> None:
    sensor = {"name": "orders/source", "kind": "source", "enabled": True, "spec": {"sources": ["raw"]}}
    at(world, SIX).publish({"orders": {"triggers": [sensor]}})
    view = world.schedules.trigger("cafe", "dev", "orders/source")
    assert (view.kind, view.evaluated, view.next_at) == ("source", False, None)
    with pytest.raises(NotFound, match="sensor"):
        world.schedules.preview_of("cafe", "dev", "orders/source", None, 1)
    at(world, SIX + timedelta(days=1)).run_pass()
    assert ticks(world, "orders/source") == []


def test_the_due_query_uses_its_index(world: World) -> None:
    """10,000 triggers of which one is due: an index scan, not a walk."""
    at(world, SIX).publish(with_schedule("0 6 * * *"))
    world.sql(
        "INSERT INTO triggers SELECT 'x/y/' || n, 'x', 'y', n::text, 'j', 'schedule', '{}', '' FROM generate_series(1, 10000) AS n"
    )
    world.sql(
        "INSERT INTO trigger_state SELECT 'x/y/' || n, 0, true, '{}', timestamptz '2030-01-01 00:00Z' + n * interval '1 minute' FROM generate_series(1, 10000) AS n"
    )
    due = load_queries("chalicelib.schedules")["due_schedules"]
    explained = Query("explained", "EXPLAIN " + due.text, due.parameters)
    values = {"shard": 0, "pass_now": SIX, "batch": 200, "after_at": datetime(1, 1, 1, tzinfo=UTC), "after_trigger": ""}
    with world.database.transaction() as tx:
        plan = "\n".join(row["QUERY PLAN"] for row in tx.rows(explained, **values))
    assert "trigger_state_due" in plan
