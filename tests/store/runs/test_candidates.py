"""Who is decided at all: due runs, as many as the job has room for, and the relations that they want (7.2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from chalicelib.runs.claiming import BEFORE_ALL, Keyset, admit, candidates_of_runs
from chalicelib.runs.model import RunRequest
from tests.store.world import World

START = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)


@pytest.fixture
def still(world: World) -> World:
    """A fixed time, after a pass that has made the pools of the worker kinds."""
    world.at = START
    world.run_pass()
    return world


def ask(world: World, job: str, target: str = "dev") -> str:
    """A run that is a moment younger than the one before."""
    assert world.at is not None
    world.at += timedelta(milliseconds=1)
    view, _ = world.runs.request("cafe", target, job, RunRequest(run_id=world.ids.mint("run")), "tester")
    return view.run_id


def delay(world: World, run_id: str, seconds: int) -> None:
    world.sql("UPDATE runs SET not_before = %s WHERE run_id = %s", START + timedelta(seconds=seconds), run_id)


def relations_of(world: World, run_id: str) -> list[str]:
    rows = world.sql("SELECT relation FROM write_claims WHERE run_id = %s ORDER BY relation", run_id)
    return [row["relation"] for row in rows]


# --- delayed runs


def test_a_delayed_run_is_no_candidate_and_hides_no_younger_one(still: World) -> None:
    still.publish({"orders": {"relations": ["a"]}})
    older, younger = ask(still, "orders"), ask(still, "orders")
    delay(still, older, 60)
    still.run_pass()
    assert (still.state(older), still.state(younger)) == ("queued", "claimed")
    (blocker,) = still.runs.why(older).blockers
    assert (blocker.code, blocker.detail["not_before"]) == ("retry_backoff", "2026-12-01T06:01:00.000000Z")
    assert blocker.clears_when == "its wait is over at 2026-12-01T06:01:00.000000Z"
    assert still.sql("SELECT 1 FROM run_blockers") == []


def test_a_delayed_run_takes_its_turn_by_age_once_it_is_due(still: World) -> None:
    still.publish({"orders": {"relations": ["a"]}})
    older, younger = ask(still, "orders"), ask(still, "orders")
    delay(still, older, 60)
    still.run_pass()
    third = ask(still, "orders")
    still.at = START + timedelta(seconds=61)
    still.finish(younger, still.start(younger))
    still.run_pass()
    assert [still.state(run) for run in (older, younger, third)] == ["claimed", "succeeded", "queued"]


def test_one_that_waits_for_its_time_holds_nothing(still: World) -> None:
    """BR-095."""
    still.publish(
        {"retried": {"relations": ["a"], "pools": [{"name": "default", "weight": 10}]}, "other": {"relations": ["a"]}}
    )
    waiting = ask(still, "retried")
    delay(still, waiting, 600)
    other = ask(still, "other")
    still.run_pass()
    assert still.state(other) == "claimed"
    still.at = START + timedelta(seconds=600)
    still.run_pass()
    assert still.state(waiting) == "queued"
    assert [(b.code, b.detail["holder"]) for b in still.runs.why(waiting).blockers] == [("write_claim", other)]


# --- the job's limit


def test_a_run_never_overtakes_an_older_one_of_its_job(still: World) -> None:
    """Also when a newer snapshot allows more at once than the older run's."""
    still.publish({"orders": {"concurrency": 1}})
    first, second = ask(still, "orders"), ask(still, "orders")
    still.publish({"orders": {"concurrency": 5}}, snapshot="c" * 64)
    third = ask(still, "orders")
    still.run_pass()
    assert [still.state(run) for run in (first, second, third)] == ["claimed", "queued", "queued"]
    assert [[b.code for b in still.runs.why(run).blockers] for run in (second, third)] == [["job_concurrency"]] * 2
    still.finish(first, still.start(first))
    still.run_pass()
    assert [still.state(run) for run in (second, third)] == ["claimed", "claimed"]


def test_a_run_that_falls_behind_its_job_s_limit_shows_nothing_else(still: World) -> None:
    still.publish({"orders": {"relations": ["a"], "concurrency": 1}, "holder": {"relations": ["a"]}})
    ask(still, "holder")
    delayed, waiting = ask(still, "orders"), ask(still, "orders")
    delay(still, delayed, 60)
    still.run_pass()
    assert [b.code for b in still.runs.why(waiting).blockers] == ["write_claim"]
    still.at = START + timedelta(seconds=60)
    still.run_pass()
    assert [b.code for b in still.runs.why(delayed).blockers] == ["write_claim"]
    assert [b.code for b in still.runs.why(waiting).blockers] == ["job_concurrency"]


# --- selections


def test_a_selection_claims_the_relations_of_its_nodes_and_what_the_job_declares(still: World) -> None:
    still.publish(
        {
            "all": {
                "nodes": ["model:a", "model:b"],
                "relations": ["db.s.a", "db.s.b", "db.s.hook"],
                "also": ["db.s.hook"],
            },
            "b": {"relations": ["db.s.b"]},
        },
        graph={"model:a": (), "model:b": ("model:a",), "model:elsewhere": ()},
    )
    part = ask(still, "all")
    still.sql("UPDATE runs SET selection = %s WHERE run_id = %s", '["model:a", "model:elsewhere"]', part)
    beside = ask(still, "b")
    still.run_pass()
    assert [still.state(run) for run in (part, beside)] == ["claimed", "claimed"]
    assert relations_of(still, part) == ["db.s.a", "db.s.hook"]


def test_a_selection_in_a_single_writer_target_claims_the_warehouse(still: World) -> None:
    still.sql("UPDATE targets SET single_writer = true")
    still.publish({"all": {"nodes": ["model:a"], "relations": ["db.s.a"]}}, graph={"model:a": ()})
    run_id = ask(still, "all")
    still.sql("UPDATE runs SET selection = '[\"model:a\"]'")
    still.run_pass()
    assert relations_of(still, run_id) == ["*"]


def test_the_same_name_in_two_warehouses_is_two_relations(still: World) -> None:
    """BR-098: dev and prod."""
    still.target("cafe", "prod")
    still.publish({"orders": {"relations": ["orders"]}})
    still.publish({"orders": {"relations": ["orders"]}}, target="prod")
    runs = [ask(still, "orders"), ask(still, "orders", "prod")]
    still.run_pass()
    assert [still.state(run) for run in runs] == ["claimed", "claimed"]


# --- any rows


def test_rows_that_the_caller_queues_are_decided_in_its_own_transaction(still: World) -> None:
    still.publish({"one": {"relations": ["a"]}, "two": {"relations": ["a"]}})
    runs = [ask(still, "one"), ask(still, "two")]
    delayed = ask(still, "two")
    delay(still, delayed, 60)
    decided = still.leader().write(
        lambda tx: admit(tx, still.ids, candidates_of_runs(tx, [delayed, *reversed(runs), "run_of_nobody_000000"]))
    )
    assert decided.claimed.keys() == {runs[0]}
    assert decided.blocked == 1


def test_a_batch_costs_the_same_statements_whatever_is_in_it(still: World) -> None:
    """One run or fifty, with pools and relations in numbers, granted or not."""
    jobs = {
        f"j{i}": {"relations": [f"r{i % 30}", f"r{(i * 7) % 30}"], "pools": [{"name": "default", "weight": 1 + i % 3}]}
        for i in range(60)
    }
    still.publish(jobs)
    leader = still.leader()

    def cost(count: int) -> int:
        for i in range(count):
            ask(still, f"j{i}")
        before = still.database.statements
        batch = still.runs.claim_batch(leader.write, 0, BEFORE_ALL)
        assert batch.claimed
        return still.database.statements - before

    assert cost(2) == 16
    still.sql("UPDATE pools SET slot_limit = 60")
    assert cost(60) == 16 + 3  # and the blockers


def test_a_pass_goes_on_behind_what_it_has_read_ahead(still: World) -> None:
    still.publish({f"j{i:03}": {} for i in range(120)})
    runs = [ask(still, f"j{i:03}") for i in range(120)]
    leader, sizes = still.leader(), []
    after: Keyset | None = BEFORE_ALL
    while after is not None:
        batch = still.runs.claim_batch(leader.write, 0, after)
        sizes.append(len(batch.claimed))
        after = batch.last
    assert sizes == [50, 50, 20]
    assert {still.state(run) for run in runs} == {"claimed"}
