"""A backfill from its start to its end, on a real store (scheduler.md 10.5)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from chalicelib.backfills.model import RangeRequest
from chalicelib.backfills.reading import BackfillFilter
from chalicelib.kernel.errors import AlreadyFinished, IdReused, InvalidInputs, NotFound
from chalicelib.kernel.limits import BACKFILLS_PER_BATCH
from tests.doubles import HandClock
from tests.store.backfills.conftest import BACKFILL, DAILY, BackfillWorld
from tests.store.world import SNAPSHOT, schedule

WIDE = {"concurrency": 10, "triggers": [DAILY]}
BEFORE = (datetime(1, 1, 1, tzinfo=UTC), "")
DAYS = [f"2026-01-{day:02}T06:00:00.000000Z" for day in range(1, 11)]


def published(world: BackfillWorld, **more: Any) -> BackfillWorld:
    world.publish({"orders": {**WIDE, **more}})
    return world


def counts(world: BackfillWorld) -> dict[str, int]:
    return {str(state): count for state, count in world.shown().counts.items()}


def test_items_begin_in_order_two_at_a_time_and_the_last_end_completes_it(world: BackfillWorld) -> None:
    published(world)
    view = world.begin()
    assert (view.state, view.items, view.waiting, view.counts) == ("active", 10, 10, {})
    world.run_pass()
    runs = world.active()
    assert [world.runs.run(run).origin for run in runs] == ["backfill", "backfill"]
    assert [item.item for item in world.domains.backfills.items(BACKFILL, None, None).items] == DAYS[:2]
    assert world.run_pass() == []
    world.succeed(runs[0])
    assert len(world.run_pass()) == 1
    world.drain()
    done = world.shown()
    assert (done.state, done.waiting, done.counts) == ("completed", 0, {"succeeded": 10})
    assert done.finished_at is not None


def test_an_item_over_occurrences_gives_its_run_the_occurrence_and_what_follows_from_it(world: BackfillWorld) -> None:
    inputs = {"day": {"type": "date", "default_from": "scheduled_for"}, "mode": {"type": "text", "default": "x"}}
    published(world, inputs=inputs)
    world.begin(until="2026-01-02", inputs={"mode": "full"})
    world.run_pass()
    (run,) = world.active()
    view = world.runs.run(run)
    assert view.scheduled_for is not None
    assert view.scheduled_for.isoformat() == "2026-01-01T06:00:00+00:00"
    assert (view.inputs, view.backfill_id) == ({"day": "2026-01-01", "mode": "full"}, BACKFILL)
    assert (view.trigger, view.requested_by) == (None, "tester")


def test_partitions_give_their_bounds_and_no_occurrence(world: BackfillWorld) -> None:
    bounds = {"start": {"type": "date", "maps_to": "cursor:start"}, "end": {"type": "date", "maps_to": "cursor:end"}}
    published(world, inputs=bounds)
    world.begin(until="2026-03-01", over="partitions", step="month")
    world.run_pass()
    runs = [world.runs.run(run) for run in world.active()]
    assert sorted(json.dumps(run.inputs) for run in runs) == [
        '{"end": "2026-02-01", "start": "2026-01-01"}', '{"end": "2026-03-01", "start": "2026-02-01"}',
    ]  # fmt: skip
    assert {run.scheduled_for for run in runs} == {None}


def test_the_same_request_gives_the_same_backfill_and_another_one_is_refused(world: BackfillWorld) -> None:
    published(world)
    first = world.begin()
    assert world.begin() == first
    assert world.sql("SELECT count(*) AS n FROM backfills") == [{"n": 1}]
    with pytest.raises(IdReused):
        world.begin(max_parallel=3)


def test_two_equal_requests_at_once_make_one(world: BackfillWorld) -> None:
    published(world)
    with ThreadPoolExecutor(2) as pool:
        views = list(pool.map(lambda _: world.begin(), range(2)))
    assert views[0] == views[1]


def test_inputs_are_checked_for_every_item_before_anything_is_stored(world: BackfillWorld) -> None:
    published(world, inputs={"mode": {"type": "text", "required": True}})
    with pytest.raises(InvalidInputs, match=r"inputs\.mode: is required"):
        world.begin()
    with pytest.raises(NotFound):
        world.begin(job="nothing")
    assert world.sql("SELECT * FROM backfills") == []


def test_no_waiting_run_is_ever_left_behind(world: BackfillWorld) -> None:
    """An item becomes a run only in the transaction that also claims it."""
    published(world, relations=["a"])
    world.begin(max_parallel=5)
    world.run_pass()
    assert world.sql("SELECT status FROM runs") == [{"status": "claimed"}]
    assert world.sql("SELECT count(*) AS n FROM backfill_items") == [{"n": 1}]
    for _ in range(3):
        world.run_pass()
    assert world.sql("SELECT count(*) AS n FROM runs") == [{"n": 1}]
    assert world.sql("SELECT count(*) AS n FROM run_events WHERE kind = 'queued'") == [{"n": 1}]
    assert world.sql("SELECT * FROM run_blockers") == []


def test_what_the_next_item_waits_for_is_shown_since_when_and_until_when(world: BackfillWorld, hand: HandClock) -> None:
    world.publish({"orders": {**WIDE, "relations": ["a"]}, "other": {"relations": ["a"]}})
    holder = world.request("other")
    world.run_pass()
    world.begin()
    world.run_pass()
    (wait,) = world.shown().waits_for
    assert (wait.code, wait.subject, wait.detail["holder"]) == ("write_claim", "cafe/dev:a", holder)
    assert holder in wait.clears_when
    hand.advance(60)
    world.run_pass()
    assert world.shown().waits_for[0].since == wait.since
    world.succeed(holder)
    world.run_pass()
    assert len(world.active()) == 1


def test_it_says_when_it_waits_for_itself_or_for_its_job(world: BackfillWorld) -> None:
    published(world)
    world.begin()
    world.run_pass()
    (wait,) = world.shown().waits_for
    assert (wait.code, sorted(wait.detail["unfinished"])) == ("max_parallel", sorted(world.active()))
    world.publish({"orders": {**WIDE, "concurrency": 1}}, snapshot="c" * 64)
    world.begin(backfill_id="bkf_0000000000000002")
    (wait,) = world.shown("bkf_0000000000000002").waits_for
    assert wait.code == "job_concurrency"


def test_a_backfill_needs_no_room_that_its_job_has_not(world: BackfillWorld) -> None:
    published(world, concurrency=1)
    world.begin(max_parallel=5)
    world.run_pass()
    assert len(world.active()) == 1


def test_today_s_scheduled_run_goes_first(world: BackfillWorld, hand: HandClock) -> None:
    """FR-25: a backfill of many days does not hold up the schedule."""
    published(world, concurrency=1)
    world.begin(first="2026-01-01", until="2026-06-01")
    world.run_pass()
    (item,) = world.active()
    claim_id = world.start(item)
    hand.advance(24 * 3_600)
    world.run_pass()
    (waiting,) = world.sql("SELECT run_id FROM runs WHERE origin = 'schedule'")
    assert world.shown().waits_for[0].code == "waiting_run"
    world.finish(item, claim_id)
    world.run_pass()
    assert world.active() == [waiting["run_id"]]


def test_it_covers_no_tick_and_moves_no_cursor(world: BackfillWorld, hand: HandClock) -> None:
    """S21. An item's run would be just what the tick wants, and yet the tick gets a run of its own."""
    published(world)
    before = world.sql("SELECT cursor_json, next_at FROM trigger_state")
    world.begin(first="2026-06-30", until="2026-07-01")
    world.run_pass()
    assert world.sql("SELECT cursor_json, next_at FROM trigger_state") == before
    hand.advance(18 * 3_600)
    world.run_pass()
    ticks = world.sql("SELECT outcome, run_id FROM ticks")
    assert [tick["outcome"] for tick in ticks] == ["requested"]
    assert world.runs.run(ticks[0]["run_id"]).origin == "schedule"


def test_a_failed_item_stops_no_other(world: BackfillWorld) -> None:
    published(world)
    world.begin(until="2026-01-04")
    world.run_pass()
    for run in world.active():
        world.finish(run, world.start(run), "failed", reason="tool_failed")
    world.drain()
    assert (world.shown().state, counts(world)) == ("completed", {"failed": 2, "succeeded": 1})


def test_a_retry_counts_to_the_parallel_runs_and_as_its_item(world: BackfillWorld, hand: HandClock) -> None:
    published(world, retries={"max": 1, "backoff": 60, "on": ["failed"]})
    world.begin(until="2026-01-04", max_parallel=1)
    world.run_pass()
    (run,) = world.active()
    world.finish(run, world.start(run), "failed", reason="tool_failed")
    assert world.run_pass() == []
    assert (world.shown().waiting, counts(world)) == (2, {"queued": 1})
    assert world.shown().waits_for[0].code == "max_parallel"
    hand.advance(61)
    world.run_pass()
    (retry,) = world.active()
    assert world.runs.run(retry).retry_of == run
    first = world.domains.backfills.items(BACKFILL, None, None).items[0]
    assert (first.first_run_id, first.run_id, first.state, first.retry_number) == (run, retry, "claimed", 1)
    world.drain()
    assert counts(world) == {"succeeded": 3}


def test_a_job_that_is_gone_is_made_up_for_with_the_snapshot_of_its_start(world: BackfillWorld) -> None:
    published(world)
    world.begin(until="2026-01-06")
    world.run_pass()
    world.publish({"other": {}}, snapshot="d" * 64)
    world.drain()
    assert counts(world) == {"succeeded": 5}
    assert world.sql("SELECT DISTINCT snapshot_id FROM runs") == [{"snapshot_id": SNAPSHOT}]


def test_a_disabled_location_holds_it_back_and_says_so(world: BackfillWorld) -> None:
    published(world)
    world.begin()
    world.domains.locations.set_disabled("cafe", True)
    world.run_pass()
    assert [wait.code for wait in world.shown().waits_for] == ["location_disabled"]
    world.domains.locations.set_disabled("cafe", False)
    assert len(world.run_pass()) == 2


# --- pausing, resuming, cancelling


def test_a_paused_one_makes_no_new_run_and_goes_on_where_it_stopped(world: BackfillWorld) -> None:
    """FR-25: pause, and there is nothing new."""
    published(world)
    world.begin()
    world.run_pass()
    assert world.domains.backfills.pause(BACKFILL).state == "paused"
    for run in world.active():
        world.succeed(run)
    assert world.run_pass() == []
    assert world.shown().waits_for == []
    assert world.domains.backfills.pause(BACKFILL).state == "paused"
    assert world.domains.backfills.resume(BACKFILL).state == "active"
    assert world.domains.backfills.resume(BACKFILL).state == "active"
    world.drain()
    assert counts(world) == {"succeeded": 10}


def test_a_cancel_makes_no_more_runs_stops_those_that_run_and_leaves_what_ended(world: BackfillWorld) -> None:
    """BR-134."""
    published(world)
    world.begin(max_parallel=4)
    world.run_pass()
    one, two, three, four = world.active()
    world.succeed(one)
    started = world.start(two)
    world.accept(three)
    view = world.domains.backfills.cancel(BACKFILL, "tester")
    assert (view.state, view.waiting) == ("cancelling", 6)
    assert [world.state(run) for run in (one, two, three, four)] == ["succeeded", "running", "claimed", "cancelled"]
    assert len(world.signals()) == 2
    assert world.run_pass() == []
    world.finish(two, started, "cancelled")
    world.finish(three, world.claim_of(three), "cancelled")
    world.run_pass()
    ended = world.shown()
    assert (ended.state, ended.waiting, ended.counts) == ("cancelled", 6, {"succeeded": 1, "cancelled": 3})
    assert world.run_pass() == []
    assert world.domains.backfills.cancel(BACKFILL, "tester").state == "cancelled"


def test_a_cancel_without_a_run_ends_it_at_once(world: BackfillWorld) -> None:
    published(world)
    world.begin()
    assert world.domains.backfills.cancel(BACKFILL, "tester").state == "cancelled"
    assert world.run_pass() == []


def test_a_cancel_stops_a_waiting_retry_too(world: BackfillWorld, hand: HandClock) -> None:
    published(world, retries={"max": 3, "backoff": 60, "on": ["failed"]})
    world.begin(max_parallel=1)
    world.run_pass()
    (run,) = world.active()
    world.finish(run, world.start(run), "failed", reason="tool_failed")
    assert world.domains.backfills.cancel(BACKFILL, "tester").state == "cancelled"
    hand.advance(3_600)
    assert world.run_pass() == []
    assert counts(world) == {"cancelled": 1}


def test_a_pass_goes_on_with_a_cancel_that_was_cut_off(world: BackfillWorld) -> None:
    """The state is committed before the first run is asked to stop."""
    published(world)
    world.begin()
    world.run_pass()
    world.sql("UPDATE backfills SET state = 'cancelling'")
    world.run_pass()
    assert counts(world) == {"cancelled": 2}
    world.run_pass()
    assert world.shown().state == "cancelled"


def test_what_has_ended_is_neither_paused_nor_resumed(world: BackfillWorld) -> None:
    published(world)
    world.begin(until="2026-01-02")
    world.drain()
    for change in (world.domains.backfills.pause, world.domains.backfills.resume):
        with pytest.raises(AlreadyFinished, match="already completed"):
            change(BACKFILL)
    with pytest.raises(AlreadyFinished):
        world.domains.backfills.cancel(BACKFILL, "tester")
    with pytest.raises(NotFound):
        world.domains.backfills.pause("bkf_0000000000000009")


# --- crashes, and many at once


def test_a_pass_that_is_fenced_in_the_middle_leaves_nothing(world: BackfillWorld) -> None:
    published(world)
    world.begin()
    leader = world.leader()
    world.sql("UPDATE scheduler_shards SET epoch = epoch + 1")
    with pytest.raises(Exception, match="epoch"):
        world.domains.backfills.advance_batch(leader.write, 0, BEFORE)
    assert world.sql("SELECT * FROM runs") == []
    assert world.sql("SELECT cursor FROM backfills") == [{"cursor": None}]


def test_two_passes_at_once_begin_each_item_once(world: BackfillWorld) -> None:
    published(world).run_pass()  # it makes the pools of the workers
    world.begin(max_parallel=3)
    leader = world.leader()
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: world.domains.backfills.advance_batch(leader.write, 0, BEFORE), range(4)))
    assert sum(len(one.claimed) for one in done) == 3
    assert [row["item"] for row in world.sql("SELECT item FROM backfill_items ORDER BY item")] == DAYS[:3]


def test_an_item_cannot_have_two_runs(world: BackfillWorld) -> None:
    published(world)
    world.begin()
    world.run_pass()
    with pytest.raises(psycopg.errors.UniqueViolation, match="backfill_items_one_run_per_item"):
        world.sql("INSERT INTO backfill_items VALUES (%s, %s, 'run_x')", BACKFILL, DAYS[0])


def test_many_backfills_share_a_pass(world: BackfillWorld) -> None:
    published(world, concurrency=100)
    ids = [f"bkf_{n:016}" for n in range(BACKFILLS_PER_BATCH + 5)]
    for backfill_id in ids:
        world.begin(backfill_id=backfill_id, max_parallel=3)
    before = world.database.statements
    assert len(world.run_pass()) == 3 * len(ids)
    assert world.database.statements - before < 150
    assert {world.shown(one).waiting for one in ids} == {7}


def test_one_that_cannot_be_computed_stops_no_other(world: BackfillWorld, caplog: pytest.LogCaptureFixture) -> None:
    published(world)
    world.begin()
    world.begin(backfill_id="bkf_0000000000000002")
    world.sql("UPDATE backfills SET cursor = 'nonsense' WHERE backfill_id = %s", BACKFILL)
    assert len(world.run_pass()) == 2
    assert f"backfill {BACKFILL} cannot be computed" in caplog.text


def test_a_running_one_with_room_keeps_the_shard_awake(world: BackfillWorld, hand: HandClock) -> None:
    published(world, relations=["a"], triggers=[schedule("0 6 1 1 *", name="orders/schedule")])

    def due() -> int:
        return int(world.domains.hints.read_all()[0].next_due)

    world.run_pass()
    asleep = due()
    assert asleep > hand.now().timestamp() * 1_000 + 3_600_000
    world.begin(first="2020-01-01", until="2026-01-11")
    world.run_pass()
    assert due() <= hand.now().timestamp() * 1_000
    world.domains.backfills.pause(BACKFILL)
    (run,) = world.active()
    world.succeed(run)
    world.run_pass()
    assert due() > hand.now().timestamp() * 1_000 + 3_600_000


def test_another_number_of_shards_takes_open_backfills_along(world: BackfillWorld) -> None:
    published(world)
    world.begin(max_parallel=1)
    world.run_pass()
    world.scheduler.reshard(4)
    (row,) = world.sql("SELECT b.shard AS backfill, j.shard AS job, r.shard AS run FROM backfills b, jobs j, runs r")
    assert row["backfill"] == row["job"] == row["run"]
    (run,) = world.active()
    world.succeed(run)
    assert len(world.scheduler.run_pass(row["job"]).claimed) == 1


# --- looking


def test_a_dry_look_stores_nothing(world: BackfillWorld) -> None:
    published(world, inputs={"day": {"type": "date", "default_from": "scheduled_for"}})
    fields = {
        "location": "cafe",
        "target": "dev",
        "job": "orders",
        "over": "occurrences",
        "from": "2026-01-01",
        "to": "2026-01-03",
    }
    plan = world.domains.backfills.plan(RangeRequest.model_validate(fields))
    assert [(one.item, one.inputs) for one in plan.items] == [
        (DAYS[0], {"day": "2026-01-01"}), (DAYS[1], {"day": "2026-01-02"}),
    ]  # fmt: skip
    assert (plan.snapshot_id, plan.schedule, plan.timezone) == (SNAPSHOT, "orders/schedule", "UTC")
    assert world.sql("SELECT * FROM backfills") == []


def test_lists_are_newest_first_page_by_page_and_filtered(world: BackfillWorld, hand: HandClock) -> None:
    published(world)
    ids = [f"bkf_{n:016}" for n in range(5)]
    for backfill_id in ids:
        world.begin(backfill_id=backfill_id)
        hand.advance(1)
    world.domains.backfills.pause(ids[0])
    service = world.domains.backfills
    first = service.backfills(BackfillFilter(location="cafe"), 3, None)
    rest = service.backfills(BackfillFilter(location="cafe"), 3, first.next_cursor)
    assert [one.backfill_id for one in (*first.items, *rest.items)] == ids[::-1]
    assert rest.next_cursor is None
    assert [one.backfill_id for one in service.backfills(BackfillFilter(state="paused"), None, None).items] == [ids[0]]
    assert service.backfills(BackfillFilter(target="other"), None, None).items == []


def test_items_are_shown_page_by_page(world: BackfillWorld) -> None:
    published(world)
    world.begin(max_parallel=5)
    world.run_pass()
    service = world.domains.backfills
    first = service.items(BACKFILL, 3, None)
    rest = service.items(BACKFILL, 3, first.next_cursor)
    assert [one.item for one in (*first.items, *rest.items)] == DAYS[:5]
    with pytest.raises(NotFound):
        service.items("bkf_0000000000000009", None, None)
