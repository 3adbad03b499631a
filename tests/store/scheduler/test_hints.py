"""A hint that saved a visit never loses work (S13), and an idle tick costs one read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chalicelib.cron import tzdata_version
from chalicelib.database import load_queries
from chalicelib.entrypoints.events.tick import handle_tick
from chalicelib.kernel.errors import Unavailable
from chalicelib.kernel.limits import HINT_TRUSTED_SECONDS
from chalicelib.leases.fence import FENCE_CLASS, HINT_CLASS
from chalicelib.leases.hints import Hint, Hints, shards_to_visit
from chalicelib.runs.model import CancelRequest
from chalicelib.scheduler.hinting import raise_hint, watch_writers
from tests.doubles import HandClock
from tests.store.scheduler.conftest import SIX
from tests.store.world import World, schedule

EVERY_HOUR = {"orders": {"triggers": [schedule("0 * * * *", name="orders/schedule")], "relations": ["a"]}}


def hint(world: World) -> Hint:
    return Hints(world.hints).read_all()[0]


def next_due(world: World) -> float:
    """Seconds from six o'clock until the shard is looked at."""
    return hint(world).next_due / 1000 - SIX.timestamp()


def asleep(world: World) -> bool:
    read = Hints(world.hints).read_all()
    return shards_to_visit(read, world.clock.now(), tzdata_version()) == []


def test_a_pass_lets_the_shard_sleep_until_its_next_work(world: World) -> None:
    world.publish(EVERY_HOUR)
    assert next_due(world) == -SIX.timestamp()
    world.run_pass()
    assert next_due(world) == 3_600
    assert asleep(world)


def test_an_idle_tick_is_one_read_and_no_statement(world: World) -> None:
    world.publish(EVERY_HOUR)
    world.run_pass()
    before, world.hints.reads = world.database.statements, 0

    def wire() -> Any:
        raise AssertionError("an idle tick wires nothing")

    handle_tick(Hints(world.hints), wire, world.clock)
    assert (world.hints.reads, world.database.statements) == (1, before)


def test_nothing_ahead_is_looked_at_again_after_six_hours(world: World) -> None:
    world.run_pass()
    assert next_due(world) == 6 * 3_600


def test_every_kind_of_work_ahead_bounds_the_sleep(world: World) -> None:
    world.sql("UPDATE targets SET settle_seconds = 900")
    world.publish({"orders": {"relations": ["a"]}})
    run_id = world.request("orders")
    world.run_pass()
    assert next_due(world) == 30  # the platform scan while a run is active, before its deadlines
    claim_id = world.accept(run_id)
    world.run_pass()
    assert next_due(world) == 30
    world.runs.cancel(run_id, CancelRequest(cancel_id="can_0000000000000001"), "tester")
    world.run_pass()
    assert next_due(world) == 0  # a cancel is signalled each minute until the run ends
    world.finish(run_id, claim_id, "cancelled", settled=False)
    world.run_pass()
    assert next_due(world) == 900  # the end of its settle time


@pytest.mark.parametrize(
    "what", ["request", "cancel", "accept", "start", "finish", "enable", "publish", "boot ended", "disable location"]
)
def test_whatever_makes_something_due_lowers_the_hint_before_its_commit(world: World, what: str) -> None:
    world.publish(EVERY_HOUR)
    run_id = world.request("orders")
    world.run_pass()
    claim_id = world.start(run_id) if what in {"finish", "boot ended", "cancel"} else ""
    world.run_pass()
    before = hint(world).generation
    writes: dict[str, Any] = {
        "request": lambda: world.request("orders"),
        "cancel": lambda: world.runs.cancel(run_id, CancelRequest(cancel_id="can_0000000000000001"), "tester"),
        "accept": lambda: world.accept(run_id),
        "start": lambda: world.start(run_id),
        "finish": lambda: world.finish(run_id, claim_id),
        "enable": lambda: world.schedules.set_enabled(
            "cafe", "dev", "orders/schedule", enabled=True, request_id="req_0000000000000001"
        ),
        "publish": lambda: world.publish(EVERY_HOUR),
        "boot ended": lambda: world.runs.boot_ended("boot_0000000000000001"),
        "disable location": lambda: world.domains.locations.set_disabled("cafe", True),
    }
    writes[what]()
    assert hint(world).next_due == 0
    assert hint(world).generation > before


def test_a_write_past_the_door_is_noticed(world: World) -> None:
    """The control of the watch under which all these tests run."""
    assert (FENCE_CLASS, HINT_CLASS) == (7422, 7423)
    with pytest.raises(Exception, match="past the door"):
        world.database.write(lambda tx: tx.execute(load_queries("chalicelib.runs")["free_slots"], run_ids=[]))


def test_a_writer_that_cannot_lower_the_hint_writes_nothing(world: World) -> None:
    world.publish(EVERY_HOUR)
    world.run_pass()
    world.hints.broken = True
    with pytest.raises(Unavailable):
        world.request("orders")
    world.hints.broken = False
    assert world.sql("SELECT 1 FROM runs") == []


def test_a_hint_is_lowered_once_between_two_raises(world: World) -> None:
    world.publish(EVERY_HOUR)
    world.run_pass()
    world.request("orders")
    generation = hint(world).generation
    world.request("orders")
    assert hint(world).generation == generation
    world.run_pass()
    world.request("orders")
    assert (hint(world).next_due, hint(world).generation) == (0, generation + 2)  # the pass itself lowers it, too


def test_that_a_hint_is_low_is_trusted_for_seconds_only(world: World, clock: HandClock) -> None:
    """A database that failed over may have lost the move of a raiser: then the sequence stands where it stood."""
    world.publish(EVERY_HOUR)
    generation = hint(world).generation
    clock.advance(HINT_TRUSTED_SECONDS)
    world.request("orders")
    assert hint(world).generation == generation + 1


def test_a_raise_that_began_before_a_write_fails(world: World) -> None:
    """The writer commits after the raiser computed: the raiser's generation is old, and the hint stays low."""
    world.publish(EVERY_HOUR)
    leader = world.leader()

    class Interrupted(Hints):
        def raise_to(self, shard: int, generation: int, sleep: Any) -> bool:
            world.request("orders")
            return super().raise_to(shard, generation, sleep)

    hints = Interrupted(world.hints)
    assert raise_hint(leader, hints, watch_writers(leader, hints)) is False
    assert hint(world).next_due == 0


def test_a_run_queued_behind_the_claims_keeps_the_hint_low(world: World) -> None:
    """It is queued and its hint lowered while a pass is past its claims: the raise of that pass must not hide it."""
    world.publish(EVERY_HOUR)
    leader = world.leader()
    hints = Hints(world.hints)
    generation = watch_writers(leader, hints)
    world.request("orders")
    assert raise_hint(leader, hints, generation) is False
    assert hint(world).next_due == 0


def test_a_writer_whose_lowering_was_raised_over_lowers_again(world: World) -> None:
    """The raise comes between the writer's lowering and its commit: ``hint_seq`` has moved, and it starts over."""
    world.publish(EVERY_HOUR)
    raised: list[bool] = []

    class Racing(Hints):
        def lower(self, shard: int) -> None:
            super().lower(shard)
            if not raised:
                leader = world.leader()
                hints = Hints(world.hints)
                raised.append(raise_hint(leader, hints, watch_writers(leader, hints)))
                leader.release(None)

    from chalicelib.leases.lowering import HintLowering, all_shards

    lowered = HintLowering(world.database, Racing(world.hints), lambda _: None)
    lowered.lowered(all_shards, lambda tx: tx.now)
    assert raised == [True]
    assert hint(world).next_due == 0


def test_a_paused_raiser_of_an_older_epoch_is_disarmed(world: World) -> None:
    world.publish(EVERY_HOUR)
    old = world.leader()
    generation = Hints(world.hints).generation(0)
    world.leases.items.clear()  # its lease ran out while it was paused
    world.run_pass()
    assert Hints(world.hints).generation(0) > generation
    assert old.epoch == 1


def test_other_zone_data_wakes_the_shard_and_recomputes_it_once(world: World, clock: HandClock) -> None:
    world.publish(EVERY_HOUR)
    world.run_pass()
    read = Hints(world.hints).read_all()
    assert shards_to_visit(read, clock.now(), "another") == [0]
    world.sql("UPDATE trigger_state SET next_at = %s", SIX + timedelta(days=9))
    world.sql("UPDATE scheduler_shards SET tzdata_version = 'older'")
    world.run_pass()
    assert world.sql("SELECT next_at FROM trigger_state") == [{"next_at": SIX + timedelta(hours=1)}]
    assert world.sql("SELECT tzdata_version FROM scheduler_shards") == [{"tzdata_version": tzdata_version()}]


def test_an_absent_hint_counts_as_due(world: World, clock: HandClock) -> None:
    far = Hint(next_due=2**50, tzdata=tzdata_version(), generation=1, shards=3, active=False)
    assert shards_to_visit({}, clock.now(), tzdata_version()) is None
    assert shards_to_visit({0: far, 2: far}, clock.now(), tzdata_version()) == [1]
    assert [result.shard for result in world.scheduler.minute()] == [0]
