"""Reruns: as it was, by today's job, and what was left over (10.2, S47)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chalicelib.kernel.errors import IdReused, InvalidInputs, NotFound, NothingToRerun, NotTerminal
from chalicelib.runs.model import CancelRequest, NodeReport, Report, RerunRequest, RunView
from tests.store.world import World, schedule

SIX = datetime(2026, 12, 1, 6, tzinfo=UTC)
RERUN, OTHER = "run_000000000000rerun", "run_0000000000000other"
GRAPH: dict[str, list[str]] = {
    "model:a": [],
    "model:b": ["model:a"],
    "model:c": ["model:b"],
    "model:d": ["model:a"],
}
NODES = list(GRAPH)
JOB: dict[str, Any] = {"nodes": NODES, "relations": ["db.s.a", "db.s.b", "db.s.c", "db.s.d"]}


@pytest.fixture
def shop(world: World) -> World:
    world.publish({"orders": JOB}, graph=GRAPH)
    return world


def ended(world: World, state: str = "failed", *, run_id: str | None = None, **statuses: str) -> str:
    """A run that ended with these node results."""
    run_id = run_id or world.request("orders")
    world.run_pass()
    claim_id = world.start(run_id)
    if statuses:
        nodes = [NodeReport.model_validate({"node": f"model:{n}", "status": s}) for n, s in statuses.items()]
        world.runs.report(run_id, claim_id, Report(report_key="rep_nodes_00000000001", kind="nodes", nodes=nodes))
    world.finish(run_id, claim_id, state, reason="tool_failed" if state == "failed" else None)
    return run_id


def rerun(world: World, original: str, run_id: str = RERUN, who: str = "tester", **how: bool) -> RunView:
    view, _ = world.runs.rerun(original, RerunRequest(run_id=run_id, **how), who)
    return view


def nodes_of(world: World, run_id: str) -> dict[str, str]:
    return {one.node: one.status for one in world.runs.nodes(run_id, None, None).items}


def test_a_rerun_has_the_snapshot_inputs_and_occurrence_of_the_original(world: World) -> None:
    inputs = {"day": {"type": "date", "default_from": "scheduled_for", "maps_to": "env"}}
    world.at = SIX - timedelta(minutes=5)
    world.publish({"orders": {"inputs": inputs, "triggers": [schedule("0 6 * * *", name="orders/schedule")]}})
    world.at = SIX
    world.run_pass()
    (row,) = world.sql("SELECT run_id FROM runs")
    original = ended(world, "succeeded", run_id=row["run_id"])
    world.publish({"renamed": {}}, snapshot="c" * 64)
    first, again = world.runs.run(original), rerun(world, original)
    assert (again.origin, again.rerun_of, again.state, again.requested_by) == ("rerun", original, "queued", "tester")
    for name in ("location", "target", "job", "snapshot_id", "inputs", "scheduled_for", "selection"):
        assert getattr(again, name) == getattr(first, name)
    assert (again.scheduled_for, again.trigger, again.retry_number) == (SIX, None, 0)
    world.run_pass()
    assert world.state(RERUN) == "claimed"


def test_a_run_that_has_not_ended_is_not_run_again(shop: World) -> None:
    run_id = shop.request("orders")
    with pytest.raises(NotTerminal, match="queued") as refused:
        rerun(shop, run_id)
    assert refused.value.facts == {"state": "queued"}
    with pytest.raises(NotFound):
        rerun(shop, "run_of_nobody_000000")


def test_the_same_request_gives_the_same_run_and_another_is_refused(shop: World) -> None:
    """S47: whatever became of the run and whatever was published since."""
    original = ended(shop, a="failed")
    rerun(shop, original)
    shop.runs.cancel(RERUN, CancelRequest(cancel_id="can_0000000000000001"), "tester")
    shop.publish({"renamed": {}}, snapshot="d" * 64)
    view, reused = shop.runs.rerun(original, RerunRequest(run_id=RERUN), "tester")
    assert (view.run_id, view.state, reused) == (RERUN, "cancelled", True)
    for changed in ({"from_failed": True}, {"current": True}, {"who": "somebody"}):
        with pytest.raises(IdReused):
            rerun(shop, original, **changed)
    with pytest.raises(IdReused):
        rerun(shop, ended(shop, run_id=shop_rerun(shop, original)))


def shop_rerun(world: World, original: str) -> str:
    return rerun(world, original, OTHER).run_id


def test_two_reruns_at_the_same_moment_make_one_run(shop: World) -> None:
    original = ended(shop, a="succeeded", b="failed", c="skipped", d="succeeded")
    request = RerunRequest(run_id=RERUN, from_failed=True)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: shop.runs.rerun(original, request, "tester")[1], range(12)))
    assert sorted(answers) == [False] + [True] * 11
    assert nodes_of(shop, RERUN) == {"model:a": "carried", "model:d": "carried"}


# --- by today's job


def test_by_the_current_job_the_inputs_are_checked_again(world: World) -> None:
    number = {"type": "integer", "maps_to": "env"}
    world.publish({"orders": {"inputs": {"n": number}}})
    run_id = world.request("orders", n=3)
    ended(world, run_id=run_id)
    other = {"n": number, "mode": {"default": "daily", "maps_to": "env"}}
    world.publish({"orders": {"inputs": other}}, snapshot="c" * 64)
    current = rerun(world, run_id, current=True)
    assert (current.snapshot_id, current.inputs, current.rerun_of) == ("c" * 64, {"n": 3, "mode": "daily"}, run_id)
    assert rerun(world, run_id, OTHER).snapshot_id == "a" * 64
    world.publish({"orders": {"inputs": {"n": {"type": "date", "maps_to": "env"}}}}, snapshot="d" * 64)
    with pytest.raises(InvalidInputs, match=r"inputs\.n"):
        rerun(world, run_id, "run_0000000000000third", current=True)


def test_a_job_that_is_gone_is_missing_only_for_its_current_definition(shop: World) -> None:
    original = ended(shop, a="failed")
    shop.publish({"renamed": {}}, snapshot="c" * 64)
    with pytest.raises(NotFound, match="no longer published"):
        rerun(shop, original, current=True)
    assert rerun(shop, original).state == "queued"


def test_current_and_from_failed_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        RerunRequest(run_id=RERUN, current=True, from_failed=True)


# --- what was left over


def test_from_failed_takes_what_failed_and_what_lies_below_and_carries_the_rest(shop: World) -> None:
    original = ended(shop, a="succeeded", b="failed", c="skipped", d="warned")
    again = rerun(shop, original, from_failed=True)
    assert again.selection == ["model:b", "model:c"]
    assert nodes_of(shop, RERUN) == {"model:a": "carried", "model:d": "carried"}
    shop.run_pass()
    claim_id = shop.accept(RERUN)
    given = shop.runs.inputs(RERUN, claim_id)
    assert given.selection == ["model:b", "model:c"]
    assert given.drift_keys == {node: f"key of {node}" for node in given.selection}


def test_only_the_relations_of_the_selection_are_claimed(shop: World) -> None:
    original = ended(shop, a="succeeded", b="failed", c="skipped", d="succeeded")
    rerun(shop, original, from_failed=True)
    shop.run_pass()
    assert [row["relation"] for row in shop.sql("SELECT relation FROM write_claims ORDER BY 1")] == ["db.s.b", "db.s.c"]


def test_a_chain_of_reruns_carries_on(shop: World) -> None:
    original = ended(shop, a="succeeded", b="failed", c="skipped", d="succeeded")
    rerun(shop, original, from_failed=True)
    ended(shop, run_id=RERUN, b="succeeded", c="failed")
    assert rerun(shop, RERUN, OTHER, from_failed=True).selection == ["model:c"]
    assert nodes_of(shop, OTHER) == {"model:a": "carried", "model:b": "carried", "model:d": "carried"}
    ended(shop, "succeeded", run_id=OTHER, c="succeeded")
    with pytest.raises(NothingToRerun, match="--from-failed"):
        rerun(shop, OTHER, "run_0000000000000third", from_failed=True)


def test_a_rerun_of_a_rerun_from_failed_has_its_selection(shop: World) -> None:
    original = ended(shop, a="succeeded", b="failed", c="skipped", d="succeeded")
    rerun(shop, original, from_failed=True)
    ended(shop, "succeeded", run_id=RERUN, b="succeeded", c="succeeded")
    again = rerun(shop, RERUN, OTHER)
    assert again.selection == ["model:b", "model:c"]
    assert nodes_of(shop, OTHER) == {"model:a": "carried", "model:d": "carried"}


def test_nothing_is_left_over_of_a_success(shop: World) -> None:
    original = ended(shop, "succeeded", a="succeeded", b="succeeded", c="succeeded", d="warned")
    with pytest.raises(NothingToRerun):
        rerun(shop, original, from_failed=True)
    assert shop.sql("SELECT 1 FROM runs WHERE run_id = %s", RERUN) == []


def test_a_run_without_node_results_is_repeated_as_a_whole(shop: World) -> None:
    original = ended(shop)
    assert rerun(shop, original, from_failed=True).selection is None
    assert nodes_of(shop, RERUN) == {}


def test_it_works_after_a_cancel(shop: World) -> None:
    run_id = shop.request("orders")
    shop.run_pass()
    claim_id = shop.start(run_id)
    done = [NodeReport(node="model:a", status="succeeded"), NodeReport(node="model:b", status="succeeded")]
    shop.runs.report(run_id, claim_id, Report(report_key="rep_nodes_00000000001", kind="nodes", nodes=done))
    shop.runs.cancel(run_id, CancelRequest(cancel_id="can_0000000000000001"), "tester")
    shop.finish(run_id, claim_id, "cancelled")
    assert rerun(shop, run_id, from_failed=True).selection == ["model:c", "model:d"]


def test_a_retry_of_a_rerun_from_failed_builds_the_same_and_carries_the_same(world: World) -> None:
    world.publish({"orders": JOB | {"retries": {"on": ["failed"], "backoff": 0, "max": 1}}}, graph=GRAPH)
    original = ended(world, a="succeeded", b="failed", c="skipped", d="succeeded")
    world.runs.cancel(str(world.runs.run(original).retried_by), CancelRequest(cancel_id="can_0000000000000001"), "me")
    rerun(world, original, from_failed=True)
    ended(world, run_id=RERUN, b="failed", c="skipped")
    retry = world.runs.run(str(world.runs.run(RERUN).retried_by))
    assert retry.selection == ["model:b", "model:c"]
    assert nodes_of(world, retry.run_id) == {"model:a": "carried", "model:d": "carried"}


def test_the_rerun_of_an_old_run_goes_to_the_shard_that_its_job_has_now(shop: World) -> None:
    original = ended(shop, a="failed")
    shop.sql("UPDATE runs SET shard = 7 WHERE run_id = %s", original)
    rerun(shop, original)
    assert shop.sql("SELECT shard FROM runs WHERE run_id = %s", RERUN) == [{"shard": 0}]


# --- an input that narrows (4.1)


def test_a_select_input_sets_the_selection_of_a_run_by_hand_and_by_schedule(world: World) -> None:
    only = {"only": {"maps_to": "option:select"}}
    world.publish({"orders": JOB | {"inputs": only}}, graph=GRAPH)
    run_id = world.request("orders", only="c, model:b")
    assert world.runs.run(run_id).selection == ["model:b", "model:c"]
    assert world.runs.run(world.request("orders")).selection is None
    ended(world, run_id=run_id, b="succeeded", c="failed")
    assert rerun(world, run_id, from_failed=True).selection == ["model:c"]
    assert nodes_of(world, RERUN) == {"model:b": "carried"}
    assert rerun(world, run_id, OTHER).selection == ["model:b", "model:c"]


def test_a_select_input_with_a_default_narrows_a_scheduled_run_and_a_like_one_covers(world: World) -> None:
    only = {"only": {"maps_to": "option:select", "default": "d"}}
    fields = JOB | {"inputs": only, "triggers": [schedule("0 * * * *", name="orders/schedule")]}
    world.at = SIX - timedelta(minutes=5)
    world.publish({"orders": fields, "holder": {"relations": ["db.s.d"]}}, graph=GRAPH)
    holder = world.request("holder")
    world.run_pass()
    world.start(holder)
    for _ in range(3):
        world.run_pass()
        world.at += timedelta(hours=1)
    rows = world.sql("SELECT selection FROM runs WHERE origin = 'schedule'")
    assert [row["selection"] for row in rows] == [["model:d"]]
    assert [row["outcome"] for row in world.sql("SELECT outcome FROM ticks ORDER BY scheduled_for")] == [
        "requested",
        "covered",
    ]


def test_a_rerun_from_failed_covers_no_tick(world: World) -> None:
    world.at = SIX - timedelta(minutes=5)
    world.publish({"orders": JOB | {"triggers": [schedule("0 6 * * *", name="orders/schedule")]}}, graph=GRAPH)
    rerun(world, ended(world, a="succeeded", b="failed", c="skipped", d="succeeded"), from_failed=True)
    world.at = SIX
    world.run_pass()
    assert [row["outcome"] for row in world.sql("SELECT outcome FROM ticks")] == ["requested"]


def test_a_source_brings_the_sources_that_would_be_loaded_with_it(world: World) -> None:
    graph: dict[str, list[str]] = {"source:raw": [], "source:other": [], "model:a": ["source:raw", "source:other"]}
    fields = {"nodes": list(graph), "inputs": {"only": {"maps_to": "option:select"}}}
    world.publish({"orders": fields}, graph=graph)
    assert world.runs.run(world.request("orders", only="a")).selection == ["model:a"]
    assert world.runs.run(world.request("orders", only="a raw")).selection == ["model:a", "source:other", "source:raw"]
