"""When retention runs, for how long, and beside what (scheduler.md 5.6, 16; F14)."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from chalicelib.catalog.model import Place
from chalicelib.catalog.store import insert_snapshot
from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.errors import UsageError
from chalicelib.kernel.limits import RETENTION_SECONDS
from chalicelib.leases.fence import Fenced
from chalicelib.scheduler.retention import Retention, retention_finished_at
from chalicelib.settings import Settings, read_settings
from tests.api.site import index
from tests.doubles import HandClock
from tests.store.retention.conftest import NOW, OldWorld
from tests.store.world import SNAPSHOT


def asked(world: OldWorld) -> int:
    """How many maintenance messages were sent since the last look."""
    sent = [json.loads(body) for body in world.queues.sent.pop("tick", [])]
    return sum(body["kind"] == "maintenance" and body["shard"] == 0 for body in sent)


def test_a_pass_asks_for_it_at_most_once_an_hour(world: OldWorld, hand: HandClock) -> None:
    asked(world)
    world.run_pass()
    assert asked(world) == 0  # a new store has nothing to remove
    hand.advance(3_599)
    world.run_pass()
    assert asked(world) == 0
    hand.advance(1)
    world.run_pass()
    world.run_pass()
    assert asked(world) == 1
    hand.advance(3_600)
    world.run_pass()
    assert asked(world) == 1


def test_only_shard_0_asks(world: OldWorld, hand: HandClock) -> None:
    world.scheduler.reshard(2)
    world.run_pass()
    hand.advance(7_200)
    asked(world)
    world.scheduler.run_pass(1)
    assert asked(world) == 0
    world.scheduler.run_pass(0)
    assert asked(world) == 1


def test_an_idle_store_is_visited_and_asks_well_within_a_day(world: OldWorld, hand: HandClock) -> None:
    world.sql("UPDATE trigger_state SET enabled = false")
    world.run_pass()
    asked(world)
    asleep = world.domains.hints.read_all()[0].next_due / 1_000 - NOW.timestamp()
    assert 3_600 < asleep < 86_400
    hand.advance(asleep)
    world.scheduler.minute()
    assert asked(world) == 1


def test_it_says_when_it_last_came_to_its_end(world: OldWorld) -> None:
    def finished() -> object:
        with world.database.transaction() as tx:
            return retention_finished_at(tx)

    assert finished() is None
    world.retain()
    assert finished() == NOW


def test_it_raises_the_hint_like_any_visit(world: OldWorld) -> None:
    assert world.retain().passes == 1
    assert world.domains.hints.read_all()[0].next_due > NOW.timestamp() * 1_000


def test_beside_another_leader_it_comes_again_later(world: OldWorld) -> None:
    holder = world.leader()
    asked(world)
    assert world.retain().led is False
    assert asked(world) == 1
    holder.release(None)
    assert world.retain().led is True


class Busy(Retention):
    """Retention beside somebody who wants the shard after the first page, or during which much time passes."""

    def __init__(self, world: OldWorld, *, seconds: float, wish: bool) -> None:
        super().__init__(world.clock, Settings().keeping())
        self.world, self.page_seconds, self.wish = world, seconds, wish

    def _page(self, *arguments: Any) -> Any:
        if self.wish:
            assert self.world.lead() is None
        self.world.clock.sleep(self.page_seconds)
        return super()._page(*arguments)


def many_ticks(world: OldWorld) -> None:
    world.sql(
        "INSERT INTO ticks SELECT 'old', n::text, %s::timestamptz + n * interval '1 minute', 'requested', 'run_old' || n, NULL, %s, 0, 0 "
        "FROM generate_series(1, 1500) n",
        NOW - timedelta(days=200), NOW - timedelta(days=91),
    )  # fmt: skip


def test_it_gives_way_to_whoever_wants_the_shard_and_goes_on_later(world: OldWorld) -> None:
    many_ticks(world)
    asked(world)
    removed: dict[str, int] = {}
    leader = world.leader()
    assert Busy(world, seconds=0, wish=True).drain(leader, removed) is False
    assert removed == {"ticks": 500}
    leader.release(None)
    result = world.retain()
    assert (result.removed["ticks"], world.count("ticks")) == (1_000, 0)


def test_it_ends_after_a_minute_and_goes_on_later(world: OldWorld) -> None:
    many_ticks(world)
    removed: dict[str, int] = {}
    assert Busy(world, seconds=RETENTION_SECONDS / 2, wish=False).drain(world.leader(), removed) is False
    assert removed == {"ticks": 1_000}
    assert world.count("maintenance") == 0


def test_a_visit_that_did_not_finish_sends_itself_a_message(world: OldWorld) -> None:
    many_ticks(world)
    world.scheduler._retention = Busy(world, seconds=RETENTION_SECONDS, wish=False)
    asked(world)
    world.retain()
    assert asked(world) == 1


def test_a_fenced_one_removes_nothing_more(world: OldWorld) -> None:
    many_ticks(world)
    leader = world.leader()
    world.sql("UPDATE scheduler_shards SET epoch = epoch + 1")
    removed: dict[str, int] = {}
    with pytest.raises(Fenced):
        Retention(world.clock, Settings().keeping()).drain(leader, removed)
    assert (removed, world.count("ticks")) == ({}, 1_500)


def test_periods_are_settings_and_zero_is_refused() -> None:
    assert read_settings({"TIDEMILL_KEEP_RUNS_DAYS": "30"}).keeping()["runs"] == 30
    with pytest.raises(UsageError, match="TIDEMILL_KEEP_RUNS_DAYS"):
        read_settings({"TIDEMILL_KEEP_RUNS_DAYS": "0"})


# --- beside others, with real connections


class Beside:
    """Another connection, in the middle of its transaction."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url)

    def __enter__(self) -> psycopg.Connection:
        return self.connection

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def test_a_run_that_somebody_works_on_is_left_to_the_next_page(world: OldWorld) -> None:
    world.old_run("run_locked", days=200)
    world.old_run("run_free", days=199)
    with Beside(world.url) as other:
        other.execute("SELECT 1 FROM runs WHERE run_id = 'run_locked' FOR UPDATE")
        assert world.retain().removed["runs"] == 1
        other.commit()
    assert world.retain().removed["runs"] == 1


def test_a_late_event_of_an_old_run_wins_or_is_refused_whole(world: OldWorld) -> None:
    world.old_run("run_old", days=200)
    insert = "INSERT INTO run_events (event_id, run_id, kind, occurred_at, payload) VALUES ('evt_1', 'run_old', 'late_report', clock_timestamp(), '{}')"
    with Beside(world.url) as other:
        other.execute(insert)
        assert world.retain().removed["runs"] == 0
        other.commit()
    assert world.retain().removed["runs"] == 1
    assert world.count("run_events") == 0


def test_a_run_queued_with_an_old_snapshot_keeps_it(world: OldWorld) -> None:
    """A rerun pins the snapshot of its original while that is about to go."""
    world.old_snapshot("unused", days=300)
    with Beside(world.url) as other:
        other.execute("SELECT pg_advisory_xact_lock_shared(7423, 0)")
        other.execute(
            "INSERT INTO runs (run_id, location, target, job, shard, snapshot_id, inputs_json, origin, status, created_at) "
            "VALUES ('run_new', 'cafe', 'dev', 'orders', 0, 'unused', '{}', 'rerun', 'queued', clock_timestamp())"
        )
        assert world.retain().removed["snapshots"] == 0
        other.commit()
    world.sql("UPDATE runs SET not_before = %s", NOW + timedelta(days=1))
    assert world.retain().removed["snapshots"] == 0


def test_a_snapshot_that_is_published_once_more_is_kept(world: OldWorld) -> None:
    world.old_snapshot("again", days=300)
    with Beside(world.url) as other:
        other.execute("UPDATE snapshots SET last_used_at = %s WHERE snapshot_id = 'again'", [NOW])
        assert world.retain().removed["snapshots"] == 0
        other.commit()
    assert world.retain().removed["snapshots"] == 0


def test_ticks_are_removed_beside_a_pass_that_writes_them(world: OldWorld) -> None:
    many_ticks(world)
    done = threading.Event()

    def write() -> None:
        with Beside(world.url) as other:
            for n in range(300):
                other.execute(
                    "INSERT INTO ticks VALUES ('new', %s, %s, 'requested', %s, NULL, %s, 0, 0)",
                    [str(n), NOW + timedelta(minutes=n), f"run_new{n}", NOW],
                )
                other.commit()
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert world.retain().removed["ticks"] == 1_500
    thread.join(30)
    assert done.is_set()
    assert world.count("ticks") == 300


def test_the_snapshot_in_use_outlives_everything(world: OldWorld, hand: HandClock) -> None:
    hand.advance(2_000 * 86_400)
    world.retain()
    assert world.sql("SELECT snapshot_id FROM snapshots") == [{"snapshot_id": SNAPSHOT}]


def test_a_publication_that_meets_the_removal_of_its_snapshot_stores_it_anew(world: OldWorld) -> None:
    """It waits for the removal, and does not go on with a snapshot that is gone (F14)."""
    world.old_snapshot("again", days=300)
    place, answers = Place(location="cafe", target="dev"), []

    def publish() -> None:
        answers.append(world.database.write(lambda tx: insert_snapshot(tx, place, "again", index(), "tester")))

    with Beside(world.url) as other:
        other.execute("DELETE FROM snapshots WHERE snapshot_id = 'again'")
        thread = threading.Thread(target=publish)
        thread.start()
        waited_for(world)
        other.commit()
        thread.join(30)
    assert answers == [True]
    assert world.sql("SELECT tool FROM snapshots WHERE snapshot_id = 'again'") == [{"tool": "command"}]


def waited_for(world: OldWorld) -> None:
    """Until a transaction waits for another's."""
    for _ in range(500):
        if world.sql("SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"):
            return
        SystemClock().sleep(0.02)
    raise AssertionError("nothing waits")
