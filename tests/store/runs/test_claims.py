"""The claim pass on a real store: all or nothing, one writer, blockers that are true (S29 to S32)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.store.world import World


@pytest.fixture
def narrow(application_url: str) -> Iterator[World]:
    """A world with one container slot."""
    made = World(application_url, container_slots=1)
    made.target()
    yield made
    made.close()


def test_one_writer_per_relation_and_the_other_says_why(world: World) -> None:
    world.publish({"one": {"relations": ["a", "b"]}, "two": {"relations": ["b", "c"]}})
    first, second = world.request("one"), world.request("two")
    world.run_pass()
    assert (world.state(first), world.state(second)) == ("claimed", "queued")
    why = world.runs.why(second)
    (blocker,) = why.blockers
    assert (blocker.code, blocker.subject, blocker.detail["holder"]) == ("write_claim", "cafe/dev:b", first)
    assert blocker.clears_when == f"run {first} (claimed) ends and releases b"
    assert first in why.explanation
    world.finish(first, world.start(first))
    world.run_pass()
    assert world.state(second) == "claimed"
    assert world.runs.why(second).blockers == []


def test_a_single_writer_target_lets_one_run_write_at_a_time(world: World) -> None:
    world.sql("UPDATE targets SET single_writer = true")
    world.publish({"one": {"relations": ["a"]}, "two": {"relations": ["b"]}, "none": {"relations": []}})
    runs = [world.request(job) for job in ("one", "two", "none")]
    world.run_pass()
    assert [world.state(run) for run in runs] == ["claimed", "queued", "queued"]
    assert world.sql("SELECT relation FROM write_claims") == [{"relation": "*"}]


def test_a_waiting_run_keeps_the_start_time_of_its_blocker(world: World) -> None:
    world.publish({"one": {"relations": ["a"]}, "two": {"relations": ["a"]}})
    world.request("one")
    waiting = world.request("two")
    world.run_pass()
    since = world.runs.why(waiting).blockers[0].since
    world.run_pass()
    assert world.runs.why(waiting).blockers[0].since == since


def test_job_concurrency_is_derived_and_always_true(world: World) -> None:
    world.publish({"orders": {"concurrency": 2}})
    runs = [world.request("orders") for _ in range(4)]
    world.run_pass()
    assert [world.state(run) for run in runs] == ["claimed", "claimed", "queued", "queued"]
    (blocker,) = world.runs.why(runs[2]).blockers
    assert (blocker.code, blocker.detail["limit"], sorted(blocker.detail["active"])) == (
        "job_concurrency",
        2,
        sorted(runs[:2]),
    )
    assert world.sql("SELECT 1 FROM run_blockers") == []
    world.finish(runs[0], world.start(runs[0]))
    world.run_pass()
    assert [world.state(run) for run in runs] == ["succeeded", "claimed", "claimed", "queued"]


def test_pools_are_the_sum_of_live_rows(world: World) -> None:
    world.publish({f"j{i}": {"pools": [{"name": "default", "weight": 4}]} for i in range(4)})
    runs = [world.request(f"j{i}") for i in range(4)]
    world.run_pass()
    assert [world.state(run) for run in runs] == ["claimed", "claimed", "queued", "queued"]
    (blocker,) = world.runs.why(runs[3]).blockers
    assert (blocker.code, blocker.detail["used"], blocker.detail["limit"]) == ("pool_full", 8, 10)
    world.finish(runs[0], world.start(runs[0]))
    world.run_pass()
    assert world.state(runs[2]) == "claimed"


def test_the_worker_kind_is_a_pool_and_a_run_waits_for_it_in_the_queue(narrow: World) -> None:
    world = narrow
    world.publish({"one": {}, "two": {}})
    first, second = world.request("one"), world.request("two")
    world.run_pass()
    (blocker,) = world.runs.why(second).blockers
    assert (blocker.code, blocker.subject, world.state(first)) == ("no_worker_capacity", "container", "claimed")


def test_a_disabled_location_gets_no_claims(world: World) -> None:
    world.publish({"orders": {}})
    run_id = world.request("orders")
    world.sql("UPDATE locations SET disabled = true")
    assert world.run_pass() == []
    assert [b.code for b in world.runs.why(run_id).blockers] == ["location_disabled"]
    world.sql("UPDATE locations SET disabled = false")
    assert len(world.run_pass()) == 1


def test_a_pass_decides_any_number_in_bounded_statements_per_batch(world: World) -> None:
    """Three batches of up to 50 cost at most three times what one run costs."""
    world.publish({f"j{i}": {"relations": [f"r{i}"]} for i in range(120)})
    world.request("j0")
    before = world.database.statements
    world.run_pass()
    one = world.database.statements - before
    for i in range(1, 120):
        world.request(f"j{i}")
    before = world.database.statements
    assert len(world.run_pass()) == 119
    assert world.database.statements - before <= 3 * one
    assert len(world.queues.sent["run-container"]) == 120


def test_passes_at_once_claim_each_run_once_and_never_two_writers(world: World) -> None:
    """BR-073: overlapping passes; the unique key decides, deadlocks are repeated."""
    world.publish({f"j{i}": {"relations": [f"r{i % 7}", f"r{(i + 3) % 7}"], "concurrency": 2} for i in range(30)})
    runs = [world.request(f"j{i}") for i in range(30)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            claimed = [c for batch in pool.map(lambda _: world.run_pass(), range(4)) for c in batch]
            assert len(claimed) == len(set(claimed))
    active = [run for run in runs if world.state(run) == "claimed"]
    held = world.sql("SELECT run_id, count(*) AS n FROM write_claims GROUP BY run_id")
    assert {row["run_id"] for row in held} == set(active)
    assert all(row["n"] == 2 for row in held)
    live = world.sql("SELECT run_id, count(*) AS n FROM claims WHERE ended_at IS NULL GROUP BY run_id")
    assert {row["run_id"] for row in live} == set(active)
    assert all(row["n"] == 1 for row in live)
    assert all(world.runs.why(run).blockers for run in runs if run not in active)


def test_the_settle_time_keeps_the_relation_after_a_killed_child(world: World) -> None:
    world.sql("UPDATE targets SET settle_seconds = 900")
    world.publish({"one": {"relations": ["a"]}, "two": {"relations": ["a"]}})
    first, second = world.request("one"), world.request("two")
    world.run_pass()
    world.finish(first, world.start(first), "failed", settled=False, reason="killed")
    world.run_pass()
    (blocker,) = world.runs.why(second).blockers
    assert (blocker.code, blocker.detail["holder"]) == ("write_claim_settling", first)
    world.sql("UPDATE write_claims SET release_after = clock_timestamp() - interval '1 second'")
    world.run_pass()
    assert world.state(second) == "claimed"


def test_a_settled_end_releases_at_once_whatever_the_settle_time(world: World) -> None:
    world.sql("UPDATE targets SET settle_seconds = 900")
    world.publish({"one": {"relations": ["a"]}})
    run_id = world.request("one")
    world.run_pass()
    world.finish(run_id, world.start(run_id), "failed", settled=True, reason="tool_failed")
    assert world.sql("SELECT 1 FROM write_claims") == []


def test_the_constraint_itself_refuses_a_second_writer(world: World) -> None:
    """The mutation of S29: without the key this test, and the safety of everything above, would fail."""
    world.publish({"one": {"relations": ["a"]}})
    run_id = world.request("one")
    world.run_pass()
    taken = world.sql(
        "INSERT INTO write_claims VALUES ('cafe/dev', 'a', %s) ON CONFLICT ON CONSTRAINT write_claims_one_writer DO NOTHING RETURNING 1",
        run_id,
    )
    assert taken == []
