"""One run from request to settled end, and everything that may be said twice (S27 to S38)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from chalicelib.kernel.errors import (
    ClaimEnded,
    ClaimTaken,
    IdReused,
    InvalidInputs,
    InvalidRequest,
    NotFound,
    ReportKeyReused,
    TidemillError,
)
from chalicelib.runs.model import AcceptRequest, NodeReport, Report, RunRequest, StartRequest
from tests.store.world import BOOT, World, terminal

OTHER_BOOT = "boot_0000000000000002"
RUN = "run_0000000000000001"


@pytest.fixture
def running(world: World) -> tuple[World, str, str]:
    world.publish({"orders": {"relations": ["db.s.orders"]}})
    run_id = world.request("orders")
    world.run_pass()
    return world, run_id, world.start(run_id)


def test_a_run_goes_from_request_to_success_and_leaves_nothing_held(world: World) -> None:
    world.publish({"orders": {"relations": ["db.s.orders"], "pools": [{"name": "default", "weight": 2}]}})
    run_id = world.request("orders")
    assert world.state(run_id) == "queued"
    (claim_id,) = world.run_pass()
    assert world.state(run_id) == "claimed"
    assert world.sql("SELECT warehouse, relation, run_id FROM write_claims") == [
        {"warehouse": "cafe/dev", "relation": "db.s.orders", "run_id": run_id}
    ]
    assert world.start(run_id) == claim_id
    world.finish(run_id, claim_id)
    view = world.runs.run(run_id)
    assert (view.state, view.end_reason, view.reported_outcome) == ("succeeded", None, "succeeded")
    assert view.finished_at is not None
    assert (
        world.sql("SELECT 1 FROM write_claims UNION ALL SELECT 1 FROM slots UNION ALL SELECT 1 FROM run_blockers") == []
    )
    kinds = [event.kind for event in world.runs.events(run_id, None, None).items]
    assert kinds == ["queued", "claimed", "dispatched", "accepted", "started", "ended"]


def test_the_message_holds_ids_only_and_stays_below_a_kilobyte(world: World) -> None:
    inputs = {f"input-{i}": {"type": "text", "default": "x" * 100, "maps_to": "env"} for i in range(400)}
    world.publish({"orders": {"inputs": inputs}})
    run_id = world.request("orders")
    (claim_id,) = world.run_pass()
    (body,) = world.queues.sent["run-container"]
    assert json.loads(body) == {"v": 1, "run_id": run_id, "claim_id": claim_id, "shard": 0}
    assert len(body) < 1_024


def test_the_same_request_twice_is_one_run(world: World) -> None:
    world.publish({"orders": {}, "other": {}})
    first, reused = world.runs.request("cafe", "dev", "orders", RunRequest(run_id=RUN), "tester")
    again, reused_again = world.runs.request("cafe", "dev", "orders", RunRequest(run_id=RUN), "tester")
    assert (reused, reused_again) == (False, True)
    assert again.run_id == first.run_id
    for job, who in [("other", "tester"), ("orders", "somebody")]:
        with pytest.raises(IdReused):
            world.runs.request("cafe", "dev", job, RunRequest(run_id=RUN), who)
    assert world.sql("SELECT count(*) AS n FROM runs") == [{"n": 1}]


def test_two_requests_at_the_same_moment_make_one_run(world: World) -> None:
    """BR-077: a double click creates one run."""
    world.publish({"orders": {}})
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda _: world.runs.request("cafe", "dev", "orders", RunRequest(run_id=RUN), "tester"), range(16))
        )
    assert sorted(reused for _, reused in answers) == [False] + [True] * 15
    assert len(world.runs.events(RUN, None, None).items) == 1


def test_a_repeat_returns_the_original_whatever_was_published_since(world: World) -> None:
    world.publish({"orders": {}})
    world.request("orders", RUN)
    world.publish({"renamed": {}}, snapshot="c" * 64)
    _, reused = world.runs.request("cafe", "dev", "orders", RunRequest(run_id=RUN), "tester")
    assert reused
    with pytest.raises(NotFound, match="orders"):
        world.request("orders")


def test_inputs_are_checked_and_pinned(world: World) -> None:
    world.publish({"orders": {"inputs": {"day": {"type": "date", "required": True, "maps_to": "var"}}}})
    with pytest.raises(InvalidInputs, match=r"inputs\.day"):
        world.request("orders")
    with pytest.raises(InvalidInputs, match=r"inputs\.dya"):
        world.request("orders", dya="2026-01-01", day="2026-01-01")
    run_id = world.request("orders", day="2026-01-31")
    assert world.runs.run(run_id).inputs == {"day": "2026-01-31"}


def test_the_inputs_are_readable_only_with_the_accepted_claim(world: World) -> None:
    world.publish({"orders": {"inputs": {"n": {"type": "integer", "default": 3, "maps_to": "var"}}}})
    run_id = world.request("orders")
    world.run_pass()
    claim_id = world.claim_of(run_id)
    with pytest.raises(ClaimEnded, match="not accepted"):
        world.runs.inputs(run_id, claim_id)
    world.accept(run_id)
    given = world.runs.inputs(run_id, claim_id)
    assert (given.inputs, given.definition.job, given.scheduled_for) == ({"n": 3}, "orders", None)
    with pytest.raises(ClaimEnded):
        world.runs.inputs(run_id, "clm_of_somebody_else")
    world.runs.start(run_id, claim_id, StartRequest(boot_id=BOOT))
    world.finish(run_id, claim_id)
    with pytest.raises(ClaimEnded):
        world.runs.inputs(run_id, claim_id)


def test_fifty_workers_accept_and_exactly_one_gets_the_run(world: World) -> None:
    """BR-046: two pollers get the same message; the loser does nothing."""
    world.publish({"orders": {}})
    run_id = world.request("orders")
    world.run_pass()
    claim_id = world.claim_of(run_id)
    boots = [f"boot_{i:016d}" for i in range(100, 150)]
    for boot in boots:
        world.open_boot(boot)

    def attempt(boot: str) -> str:
        request = AcceptRequest(claim_id=claim_id, boot_id=boot, boot_partition=0, worker_kind="container")
        try:
            world.runs.accept(run_id, request)
        except ClaimTaken:
            return "refused"
        return "accepted"

    with ThreadPoolExecutor(10) as pool:
        assert sorted(pool.map(attempt, boots)) == ["accepted"] + ["refused"] * 49
    assert [e.kind for e in world.runs.events(run_id, None, None).items].count("accepted") == 1


def test_accepting_again_from_the_same_boot_gives_a_new_token_and_ends_the_old(world: World) -> None:
    world.publish({"orders": {}})
    run_id = world.request("orders")
    world.run_pass()
    request = AcceptRequest(claim_id=world.claim_of(run_id), boot_id=BOOT, boot_partition=0, worker_kind="container")
    first, second = world.runs.accept(run_id, request), world.runs.accept(run_id, request)
    assert first.worker_token != second.worker_token
    with pytest.raises(TidemillError) as refused:
        world.access.authenticate(first.worker_token)
    assert refused.value.code == "token_revoked"
    assert world.access.authenticate(second.worker_token).scope.claim_id == request.claim_id


def test_a_boot_without_a_lease_cannot_accept(world: World) -> None:
    world.publish({"orders": {}})
    run_id = world.request("orders")
    world.run_pass()
    with pytest.raises(InvalidRequest, match="boot_id"):
        world.accept(run_id, OTHER_BOOT)


def test_a_lost_reply_to_start_is_repeated_without_effect(running: tuple[World, str, str]) -> None:
    world, run_id, claim_id = running
    started = world.runs.run(run_id).started_at
    assert world.runs.start(run_id, claim_id, StartRequest(boot_id=BOOT)).started_at == started
    with pytest.raises(ClaimTaken):
        world.runs.start(run_id, claim_id, StartRequest(boot_id=OTHER_BOOT))


def test_redelivery_after_success_has_no_effect(running: tuple[World, str, str]) -> None:
    """BR-050: the delete failed, the message comes back after success."""
    world, run_id, claim_id = running
    world.finish(run_id, claim_id)
    before = world.runs.run(run_id)
    with pytest.raises(ClaimEnded):
        world.accept(run_id)
    with pytest.raises(ClaimEnded):
        world.runs.start(run_id, claim_id, StartRequest(boot_id=BOOT))
    assert world.runs.run(run_id) == before
    assert world.run_pass() == []


def test_redelivery_while_running_is_answered_to_the_same_boot_and_refused_to_another(
    running: tuple[World, str, str],
) -> None:
    world, run_id, _ = running
    world.open_boot(OTHER_BOOT)
    with pytest.raises(ClaimTaken):
        world.accept(run_id, OTHER_BOOT)
    assert world.state(run_id) == "running"


def test_the_same_report_twice_gives_the_same_answer_and_other_content_is_refused(
    running: tuple[World, str, str],
) -> None:
    world, run_id, claim_id = running
    nodes = Report(
        report_key="rep_nodes_00000000001",
        kind="nodes",
        nodes=[NodeReport(node="model.orders", status="succeeded", duration_seconds=1.5)],
    )
    assert (
        world.runs.report(run_id, claim_id, nodes) == world.runs.report(run_id, claim_id, nodes) == {"state": "running"}
    )
    changed = nodes.model_copy(update={"nodes": []})
    with pytest.raises(ReportKeyReused):
        world.runs.report(run_id, claim_id, changed)
    assert [(n.node, n.status, n.duration_seconds) for n in world.runs.nodes(run_id, None, None).items] == [
        ("model.orders", "succeeded", 1.5)
    ]
    end = terminal("succeeded")
    assert (
        world.runs.report(run_id, claim_id, end) == world.runs.report(run_id, claim_id, end) == {"state": "succeeded"}
    )
    assert [e.kind for e in world.runs.events(run_id, None, None).items].count("ended") == 1


def test_terminal_reports_race_and_one_verdict_stands(running: tuple[World, str, str]) -> None:
    world, run_id, claim_id = running
    ends = [terminal("succeeded", key=f"rep_race_{i:012d}") for i in range(6)]
    ends += [terminal("failed", reason="tool_failed", key=f"rep_lose_{i:012d}") for i in range(6)]

    def send(report: Report) -> str:
        try:
            return str(world.runs.report(run_id, claim_id, report)["state"])
        except ClaimEnded:
            return "late"

    with ThreadPoolExecutor(12) as pool:
        answers = sorted(pool.map(send, ends))
    assert answers.count("late") == 11
    assert world.state(run_id) in answers
    kinds = [e.kind for e in world.runs.events(run_id, None, None).items]
    assert (kinds.count("ended"), kinds.count("late_report")) == (1, 11)


@pytest.mark.parametrize(
    ("state", "reason"),
    [("launch_failed", "drift"), ("cancelled", None)],
    ids=["drift after start", "cancel nobody asked for"],
)
def test_an_end_that_the_state_does_not_allow_is_refused_by_field(
    running: tuple[World, str, str], state: str, reason: str
) -> None:
    world, run_id, claim_id = running
    with pytest.raises(InvalidRequest, match=r"outcome\.state"):
        world.finish(run_id, claim_id, state, reason=reason)
    assert world.state(run_id) == "running"


def test_a_run_that_never_started_cannot_have_succeeded(world: World) -> None:
    world.publish({"orders": {}})
    run_id = world.request("orders")
    world.run_pass()
    claim_id = world.accept(run_id)
    with pytest.raises(InvalidRequest, match="claimed run cannot end succeeded"):
        world.finish(run_id, claim_id)
    world.finish(run_id, claim_id, "launch_failed", reason="drift")
    assert (world.state(run_id), world.runs.run(run_id).end_reason) == ("launch_failed", "drift")


def test_lists_page_by_keyset_and_bind_the_cursor_to_the_filter(world: World) -> None:
    from chalicelib.runs.reading import RunFilter

    world.publish({"orders": {}, "other": {}})
    wanted = [world.request("orders") for _ in range(5)]
    world.request("other")
    filters, seen, cursor = RunFilter(job="orders"), [], None
    for _ in range(10):
        page = world.runs.runs(filters, 2, cursor)
        seen += [run.run_id for run in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == wanted[::-1]
    second = world.runs.runs(filters, 2, None).next_cursor
    with pytest.raises(InvalidRequest, match="cursor"):
        world.runs.runs(RunFilter(job="other"), 2, second)
    assert [
        r.job for r in world.runs.runs(RunFilter(state="queued", after=datetime(2020, 1, 1, tzinfo=UTC)), 1, None).items
    ]


def test_what_does_not_exist_is_said(world: World) -> None:
    for read in (world.runs.run, world.runs.why, world.runs.logs):
        with pytest.raises(NotFound, match="run_nowhere"):
            read("run_nowhere")


def test_logs_are_uploaded_and_listed_by_signed_links(running: tuple[World, str, str]) -> None:
    world, run_id, _ = running
    assert world.runs.log_uploads(run_id, ["0001.log"]) == {"0001.log": f"memory:put/runs/{run_id}/logs/0001.log"}
    for name in ("../x", "", "a/b", "x" * 101):
        with pytest.raises(InvalidRequest, match="names"):
            world.runs.log_uploads(run_id, [name])
    world.objects.put(f"runs/{run_id}/logs/0001.log", b"hello")
    assert [link.name for link in world.runs.logs(run_id)] == ["0001.log"]
