"""What is past its keeping time goes, and nothing else (scheduler.md 16)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chalicelib.kernel.limits import RETENTION_NODES_PER_PAGE, RETENTION_ROWS_PER_PAGE
from tests.doubles import HandClock
from tests.store.retention.conftest import NOW, OldWorld
from tests.store.world import SNAPSHOT


def test_old_ticks_go_page_by_page(world: OldWorld) -> None:
    for n in range(3):
        world.old_tick(n, days=89.9)
    world.sql(
        "INSERT INTO ticks SELECT 'old', n::text, %s::timestamptz + n * interval '1 minute', 'requested', 'run_old' || n, NULL, %s, 0, 0 "
        "FROM generate_series(1, %s) n",
        NOW - timedelta(days=200), NOW - timedelta(days=91), 2 * RETENTION_ROWS_PER_PAGE + 7,
    )  # fmt: skip
    result = world.retain()
    assert (result.removed["ticks"], world.count("ticks")) == (2 * RETENTION_ROWS_PER_PAGE + 7, 3)


def test_a_late_tick_counts_from_its_record(world: OldWorld) -> None:
    world.sql(
        "INSERT INTO ticks VALUES ('t', 's', %s, 'requested', 'run_1', NULL, %s, 0, 0)", NOW - timedelta(days=100), NOW
    )
    assert world.retain().removed["ticks"] == 0


def test_removing_every_tick_makes_nothing_due(world: OldWorld, hand: HandClock) -> None:
    """S19, and what people ask for most (FR-22): purge everything, and no schedule fires again."""
    hand.advance(24 * 3_600)
    world.run_pass()
    assert world.count("ticks") == 1
    world.sql("UPDATE ticks SET recorded_at = %s", NOW - timedelta(days=400))
    result = world.retain()
    assert (result.removed["ticks"], result.ticked, world.count("ticks")) == (1, 0, 0)
    world.run_pass()
    assert world.count("ticks") == 0
    hand.advance(24 * 3_600)
    assert world.scheduler.run_pass(0).ticked == 1


def test_heartbeats_alerts_and_tokens_have_their_own_times(world: OldWorld) -> None:
    for days in (1.9, 2.1):
        at = NOW - timedelta(days=days)
        world.sql("INSERT INTO heartbeat_observations VALUES ('boot', %s, 'lost', 1)", at)
    for days in (29, 31):
        at = NOW - timedelta(days=days)
        world.sql(
            "INSERT INTO platform_alerts VALUES ('run_lost', %s, %s, '{}', %s, %s)", f"r{days}", f"clm_{days}", at, at
        )
    world.sql(
        "INSERT INTO platform_alerts VALUES ('run_lost', 'open', 'clm_x', '{}', %s, NULL)", NOW - timedelta(days=400)
    )
    ends = {
        "expired": (-8, None),
        "revoked": (300, -8),
        "lately": (-6, None),
        "just_revoked": (300, -6),
        "live": (1, None),
    }
    for name, (expires, revoked) in ends.items():
        end = None if revoked is None else NOW + timedelta(days=revoked)
        world.sql(
            "INSERT INTO access_tokens VALUES (%s, 'location', %s, '{}', %s, %s)",
            name,
            name,
            NOW + timedelta(days=expires),
            end,
        )
    removed = world.retain().removed
    assert (removed["heartbeats"], removed["alerts"], removed["tokens"]) == (1, 1, 2)
    kept = {row["token_id"] for row in world.sql("SELECT token_id FROM access_tokens")}
    assert kept == {"lately", "just_revoked", "live"}
    assert {row["subject"] for row in world.sql("SELECT subject FROM platform_alerts")} == {"r29", "open"}


def test_the_newest_numbered_episode_stays_so_that_no_number_comes_twice(world: OldWorld) -> None:
    at = NOW - timedelta(days=90)
    for episode in ("8", "9", "10"):
        world.sql("INSERT INTO platform_alerts VALUES ('clock_skew', '0', %s, '{}', %s, %s)", episode, at, at)
    assert world.retain().removed["alerts"] == 2
    assert world.sql("SELECT episode FROM platform_alerts") == [{"episode": "10"}]


def test_an_old_run_goes_with_all_that_hangs_on_it(world: OldWorld, hand: HandClock) -> None:
    world.sql("UPDATE trigger_state SET enabled = false")
    run_id = world.request("orders")
    world.run_pass()
    world.finish(run_id, world.start(run_id))
    world.sql("INSERT INTO run_nodes VALUES (%s, 'orders', 'succeeded')", run_id)
    tables = ("claims", "outbox", "run_events", "run_nodes", "run_reports")
    assert all(world.count(table) for table in tables)
    hand.advance(179 * 86_400)
    assert world.retain().removed["runs"] == 0
    hand.advance(2 * 86_400)
    assert world.retain().removed["runs"] == 1
    assert {table: world.count(table) for table in tables} == dict.fromkeys(tables, 0)
    assert [row["run_id"] for row in world.sql("SELECT run_id FROM runs WHERE run_id = %s", run_id)] == []


def test_a_run_that_still_writes_or_was_retried_by_a_live_one_stays(world: OldWorld) -> None:
    for run_id in ("run_writes", "run_retried", "run_done"):
        world.old_run(run_id, days=200)
    world.sql("INSERT INTO write_claims VALUES ('cafe/dev', 'a', 'run_writes', %s)", NOW + timedelta(days=1))
    world.old_run(
        "run_retry", days=1, status="queued", retry_of="run_retried", retry_number=1, not_before=NOW + timedelta(days=1)
    )
    world.old_run("run_waits", days=300, status="queued", not_before=NOW + timedelta(days=1))
    assert world.retain().removed["runs"] == 1
    assert {row["run_id"] for row in world.sql("SELECT run_id FROM runs")} == {
        "run_writes",
        "run_retried",
        "run_retry",
        "run_waits",
    }
    world.sql("UPDATE runs SET status = 'cancelled', finished_at = %s WHERE run_id = 'run_retry'", NOW)
    assert world.retain().removed["runs"] == 1


def test_a_backfill_and_its_runs_go_together(world: OldWorld) -> None:
    for name, days in (("bkf_old", 181), ("bkf_new", 1)):
        world.old_backfill(name, days=days)
        world.old_run(f"run_{name}", days=200, origin="backfill", backfill_id=name)
    world.old_backfill("bkf_open", days=400, state="paused")
    world.old_run("run_open", days=400, origin="backfill", backfill_id="bkf_open")
    removed = world.retain().removed
    assert (removed["backfills"], removed["runs"]) == (1, 1)
    assert {row["run_id"] for row in world.sql("SELECT run_id FROM runs")} == {"run_bkf_new", "run_open"}
    assert {row["backfill_id"] for row in world.sql("SELECT backfill_id FROM backfill_items")} == {
        "bkf_new",
        "bkf_open",
    }


def test_runs_with_many_nodes_go_a_few_at_a_time(world: OldWorld) -> None:
    for n in range(5):
        world.old_run(f"run_{n}", days=200 - n)
        world.sql(
            "INSERT INTO run_nodes SELECT %s, 'n' || x, 'succeeded' FROM generate_series(1, %s) x",
            f"run_{n}",
            RETENTION_NODES_PER_PAGE // 2,
        )
    before = world.database.statements
    assert world.retain().removed["runs"] == 5
    assert world.count("run_nodes") == 0
    assert world.database.statements - before > 0


def test_a_snapshot_goes_when_it_is_neither_current_nor_needed(world: OldWorld) -> None:
    for name in ("unused", "current", "of_run", "of_backfill"):
        world.old_snapshot(name, days=300)
    world.old_snapshot("lately", days=300, used=89)
    world.old_snapshot("new", days=1)
    world.sql("INSERT INTO current_snapshots VALUES ('cafe', 'dev', 'current')")
    world.old_run("run_1", days=1, snapshot="of_run")
    world.old_backfill("bkf_1", days=1, snapshot="of_backfill")
    assert world.retain().removed["snapshots"] == 1
    assert {row["snapshot_id"] for row in world.sql("SELECT snapshot_id FROM snapshots")} == {
        "current", "of_run", "of_backfill", "lately", "new", SNAPSHOT,
    }  # fmt: skip
    for table in ("snapshot_jobs", "snapshot_nodes", "snapshot_documents", "publications"):
        left = world.sql(f"SELECT 1 FROM {table} WHERE snapshot_id = 'unused'")  # noqa: S608 - names from tests
        assert left == []
    assert world.count("publications") == 5


def test_a_snapshot_was_last_used_when_it_was_last_seen_to_be_current(world: OldWorld, hand: HandClock) -> None:
    world.old_snapshot("replaced", days=300)
    world.sql("INSERT INTO current_snapshots VALUES ('cafe', 'dev', 'replaced')")
    assert world.retain().removed["snapshots"] == 0
    world.sql("UPDATE current_snapshots SET snapshot_id = %s", SNAPSHOT)
    hand.advance(89 * 86_400)
    assert world.retain().removed["snapshots"] == 0
    hand.advance(2 * 86_400)
    assert world.retain().removed["snapshots"] == 1


def test_many_snapshots_go_one_by_one(world: OldWorld) -> None:
    for n in range(4):
        world.old_snapshot(f"s{n}", days=300 + n)
    world.old_run("run_1", days=1, snapshot="s2")
    assert world.retain().removed["snapshots"] == 3


@pytest.mark.parametrize("days", [1, 400])
def test_what_is_open_stays_however_old(world: OldWorld, days: int) -> None:
    world.old_run("run_queued", days=days, status="queued", not_before=NOW + timedelta(days=1))
    world.old_backfill("bkf_open", days=days, state="paused")
    removed = world.retain().removed
    assert (removed["runs"], removed["backfills"]) == (0, 0)
