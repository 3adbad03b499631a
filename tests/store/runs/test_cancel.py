"""Cancel against everything that a run goes through, on connections of their own: the row lock decides (10.1, F10)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from chalicelib.kernel.errors import AlreadyFinished, ClaimEnded, InvalidRequest, RunCancelled, TidemillError
from chalicelib.runs.model import CancelRequest, StartRequest
from tests.store.world import BOOT, World, terminal

CANCEL, OTHER = "can_0000000000000001", "can_0000000000000002"
ROUNDS = 12


@pytest.fixture
def world(world: World) -> World:
    retries = {"max": 3, "backoff": 0, "on": ["launch_failed", "lost", "failed"]}
    world.publish({f"j{i}": {"relations": [f"r{i}"], "retries": retries} for i in range(ROUNDS)})
    return world


def cancel(world: World, run_id: str, identity: str = CANCEL) -> str:
    try:
        return world.runs.cancel(run_id, CancelRequest(cancel_id=identity), "tester").status
    except AlreadyFinished as error:
        return str(error.facts["state"])


def raced(world: World, runs: list[str], *moves: Callable[[str], object]) -> dict[str, list[str]]:
    """Every move on every run, at the same moment and in any order; what each said."""
    gate, said = threading.Barrier(len(moves)), {run: [""] * len(moves) for run in runs}

    def make(place: int, move: Callable[[str], object]) -> None:
        for run in runs:
            gate.wait(30)
            try:
                said[run][place] = str(move(run))
            except TidemillError as error:
                said[run][place] = error.code

    with ThreadPoolExecutor(len(moves)) as pool:
        for done in [pool.submit(make, place, move) for place, move in enumerate(moves)]:
            done.result(120)
    return said


def requested(world: World) -> list[str]:
    return [world.request(f"j{i}") for i in range(ROUNDS)]


def held(world: World, run_id: str) -> int:
    (row,) = world.sql(
        "SELECT (SELECT count(*) FROM write_claims WHERE run_id = %s) + (SELECT count(*) FROM slots WHERE run_id = %s) AS n",
        run_id, run_id,
    )  # fmt: skip
    return int(row["n"])


def test_cancel_and_claim(world: World) -> None:
    """BR-122: never an accepted cancel with a run that goes on."""
    runs = requested(world)
    gate = threading.Event()

    def passes() -> None:
        gate.wait(30)
        for _ in range(3):
            world.run_pass()

    order = random.Random(7).sample(runs, len(runs))
    with ThreadPoolExecutor(3) as pool:
        passing = pool.submit(passes)
        gate.set()
        assert set(pool.map(lambda run: cancel(world, run), order)) == {"cancelled"}
        passing.result(60)
    for run in runs:
        assert (world.state(run), held(world, run)) == ("cancelled", 0)
        with pytest.raises((RunCancelled, AssertionError)):
            world.accept(run)


def test_cancel_and_accept(world: World) -> None:
    runs = requested(world)
    world.run_pass()
    for run, (answer, accepted) in raced(world, runs, lambda r: cancel(world, r), world.accept).items():
        if answer == "cancelled":
            assert (accepted, world.state(run), held(world, run)) == ("cancelled", "cancelled", 0)
        else:
            assert (answer, world.state(run)) == ("cancel_requested", "claimed")
            assert held(world, run) > 0
            with pytest.raises(RunCancelled):
                world.runs.start(run, world.claim_of(run), StartRequest(boot_id=BOOT))


def test_cancel_and_start(world: World) -> None:
    runs = requested(world)
    world.run_pass()
    claims = {run: world.accept(run) for run in runs}

    def start(run: str) -> str:
        return world.runs.start(run, claims[run], StartRequest(boot_id=BOOT)).state

    for run, (answer, started) in raced(world, runs, lambda r: cancel(world, r), start).items():
        assert answer == "cancel_requested"
        assert started in {"running", "cancelled"}
        world.finish(run, claims[run], "cancelled")
        assert (world.state(run), held(world, run), world.runs.run(run).retried_by) == ("cancelled", 0, None)


def test_cancel_and_completion_and_time_out(world: World) -> None:
    """BR-121, BR-136: a cancel that was accepted ends cancelled, whatever is reported; else it says that it came late."""
    runs = requested(world)
    world.run_pass()
    claims = {run: world.start(run) for run in runs}

    def complete(run: str) -> None:
        late = runs.index(run) % 2
        world.finish(run, claims[run], "failed" if late else "succeeded", reason="timed_out" if late else None)

    for run, (answer, _) in raced(world, runs, lambda r: cancel(world, r), complete).items():
        view = world.runs.run(run)
        assert (answer == "cancel_requested") == (view.state == "cancelled")
        assert answer in {"cancel_requested", view.state}
        assert (view.retried_by is not None) == (view.state == "failed")


def test_cancel_and_loss(world: World) -> None:
    """BR-088, BR-127: whoever is first, the run ends; a cancelled one is cancelled and never starts again."""
    runs = requested(world)
    world.run_pass()
    for run in runs:
        world.open_boot(f"boot_{runs.index(run):016d}x")
        world.start(run, f"boot_{runs.index(run):016d}x")
    moves = (lambda r: cancel(world, r), lambda r: world.runs.boot_ended(f"boot_{runs.index(r):016d}x"))
    for run, (answer, _) in raced(world, runs, *moves).items():
        view = world.runs.run(run)
        assert (answer, view.state) in {("cancel_requested", "cancelled"), ("failed", "failed")}
        assert (view.retried_by is None) == (view.state == "cancelled")


def test_two_cancels_at_once_have_one_first(world: World) -> None:
    runs = requested(world)
    world.run_pass()
    for run in runs:
        world.start(run)
    both = raced(world, runs, lambda r: cancel(world, r), lambda r: cancel(world, r, OTHER))
    for run, answers in both.items():
        assert sorted(answers) == ["already_requested", "cancel_requested"]
        assert [e.kind for e in world.runs.events(run, None, None).items].count("cancel_requested") == 1


def test_the_same_cancel_twice_at_once_has_one_answer(world: World) -> None:
    """S46."""
    runs = requested(world)
    for answers in raced(world, runs, lambda r: cancel(world, r), lambda r: cancel(world, r)).values():
        assert answers == ["cancelled", "cancelled"]


# --- in order


@pytest.fixture
def started(world: World) -> tuple[World, str, str]:
    world.at = datetime(2026, 12, 1, 6, tzinfo=UTC)
    run_id = world.request("j0")
    world.run_pass()
    return world, run_id, world.start(run_id)


def test_all_is_held_until_the_worker_says_that_it_stopped(started: tuple[World, str, str]) -> None:
    """BR-133: nobody knows yet whether it stopped, so nothing is given away."""
    world, run_id, claim_id = started
    assert cancel(world, run_id) == "cancel_requested"
    for _ in range(5):
        world.at = (world.at or datetime.now(UTC)) + timedelta(hours=1)
        world.run_pass()
    assert world.state(run_id) == "running"
    assert held(world, run_id) > 0
    world.finish(run_id, claim_id, "cancelled")
    assert (world.state(run_id), held(world, run_id)) == ("cancelled", 0)


def test_a_cancelled_child_that_was_killed_keeps_its_relation_for_the_settle_time(
    started: tuple[World, str, str],
) -> None:
    """BR-130: the statement may go on in the warehouse."""
    world, run_id, claim_id = started
    world.sql("UPDATE targets SET settle_seconds = 900")
    cancel(world, run_id)
    world.finish(run_id, claim_id, "cancelled", settled=False)
    waiting = world.request("j0")
    world.run_pass()
    assert [b.code for b in world.runs.why(waiting).blockers] == ["write_claim_settling"]


def test_what_the_worker_reported_is_kept_beside_the_cancel(started: tuple[World, str, str]) -> None:
    world, run_id, claim_id = started
    cancel(world, run_id)
    world.finish(run_id, claim_id, "succeeded")
    view = world.runs.run(run_id)
    assert (view.state, view.end_reason, view.reported_outcome) == ("cancelled", None, "succeeded")
    with pytest.raises(RunCancelled):
        world.runs.report(run_id, claim_id, terminal("failed", reason="tool_failed", key="rep_afterwards_00001"))
    assert cancel(world, run_id) == "cancel_requested"
    assert cancel(world, run_id, OTHER) == "cancelled"


@pytest.mark.parametrize("reason", ["lost_before_start", "drift", "resolved"])
def test_a_reason_that_does_not_fit_the_state_is_refused(started: tuple[World, str, str], reason: str) -> None:
    world, run_id, claim_id = started
    with pytest.raises(InvalidRequest, match=r"outcome\.end_reason"):
        world.finish(run_id, claim_id, "failed", reason=reason)
    world.finish(run_id, claim_id, "failed", reason="tool_failed")
    with pytest.raises(ClaimEnded):
        world.accept(run_id)
