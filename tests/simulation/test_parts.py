"""The parts of the simulator that must be right for its findings to mean anything."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from chalicelib.cron import next_after
from tests.simulation.answers import Answers
from tests.simulation.board import Board, Fault, Process
from tests.simulation.clock import WorldClock
from tests.simulation.expressions import ExpressionError, condition_holds, updated
from tests.simulation.history import Step
from tests.simulation.occurrences import occurrences_around
from tests.simulation.queues import SimulatedQueues
from tests.simulation.scenario import CRONS, SPARSE_CRONS, STARTS, ZONES
from tests.simulation.shrink import shrink
from tests.simulation.tasks import SimulatedTasks
from tests.simulation.trace import Trace
from tests.simulation.violations import Violation
from tests.simulation.warehouses import Warehouses, Writer

START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = {"#n": "counter"}


# --- occurrences, by looking at every minute


@pytest.mark.parametrize(
    ("cron", "day", "expected"),
    [
        ("30 2 * * *", datetime(2026, 3, 8), ["08 07:00", "09 06:30"]),
        ("30 1 * * *", datetime(2026, 11, 1), ["01 05:30", "02 06:30"]),
        ("0 2,3 * * *", datetime(2026, 3, 8), ["08 07:00", "09 06:00", "09 07:00"]),
    ],
)
def test_the_worked_cases_of_the_specification(cron: str, day: datetime, expected: list[str]) -> None:
    found = occurrences_around(cron, "America/New_York", day.date())
    wanted = [instant.strftime("%d %H:%M") for instant in found if instant >= day.replace(tzinfo=UTC)]
    assert wanted[: len(expected)] == expected


@pytest.mark.parametrize("zone", ZONES)
def test_looking_at_every_minute_agrees_with_the_product(zone: str) -> None:
    for cron in {*CRONS, *SPARSE_CRONS}:
        for start in STARTS:
            found = occurrences_around(cron, zone, start.date())
            at, product = found[0] if found else start, []
            while (following := next_after(cron, zone, at)) is not None and found and following <= found[-1]:
                product.append(following)
                at = following
            assert product == list(found[1:]), (cron, zone, start)


# --- DynamoDB's expressions


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("attribute_exists(pk) AND owner = :me", True),
        ("attribute_not_exists(pk) OR owner = :free", False),
        ("NOT (owner = :free) AND #n >= :one", True),
        ("absent <> :me", False),
        ("deep.inner < :one", True),
    ],
)
def test_conditions(condition: str, *, holds: bool) -> None:
    item = {"pk": "p", "owner": "me", "counter": 3, "deep": {"inner": 0}}
    assert condition_holds(condition, NAMES, {":me": "me", ":free": "", ":one": 1}, item) is holds


def test_updates_read_the_item_as_it_was() -> None:
    item = {"counter": 3, "other": 1, "map": {"a": 1, "b": 2}}
    expression = "SET #n = #n + :one, other = #n, fresh = if_not_exists(fresh, :one) REMOVE map.a, gone"
    after = updated(expression, NAMES, {":one": 1}, item)
    assert after == {"counter": 4, "other": 3, "fresh": 1, "map": {"b": 2}}
    assert item["map"] == {"a": 1, "b": 2}


@pytest.mark.parametrize("expression", ["ADD counter :one", "SET a = size(b)", "SET a ~ b"])
def test_what_is_not_simulated_is_refused(expression: str) -> None:
    with pytest.raises(ExpressionError):
        updated(expression, NAMES, {":one": 1}, {"b": 1})


# --- processes that take turns


def _board() -> tuple[Board, list[str]]:
    clock = WorldClock(START)
    return Board(clock, Trace(clock)), []


def test_a_paused_process_goes_on_when_its_time_has_come() -> None:
    board, seen = _board()

    def work() -> None:
        with board.operation("step", RuntimeError):
            seen.append("first")
        seen.append("second")

    board.run(Process("one", random.Random(1), (Fault(0, "after", "pause", 5.0),)), work)
    board.run(Process("two", random.Random(2)), lambda: seen.append("other"))
    board.resume_due()
    assert seen == ["first", "other"]
    board.clock.advance(5.0)
    board.resume_due()
    assert seen == ["first", "other", "second"]


def test_a_crashed_process_does_nothing_more_not_even_cleaning_up() -> None:
    board, seen = _board()

    def work() -> None:
        try:
            with board.operation("step", RuntimeError):
                seen.append("effect")
        finally:
            with board.operation("clean", RuntimeError):
                seen.append("cleaned")

    board.run(Process("one", random.Random(1), (Fault(0, "after", "crash"),)), work)
    assert seen == ["effect"]


@pytest.mark.parametrize(("when", "effects"), [("before", 0), ("after", 1)])
def test_an_error_comes_before_or_after_the_effect(when: str, effects: int) -> None:
    board, seen = _board()
    fault = Fault(0, "before" if when == "before" else "after", "error")

    def work() -> None:
        with pytest.raises(ConnectionError), board.operation("step", ConnectionError):
            seen.append("effect")

    board.run(Process("one", random.Random(1), (fault,)), work)
    assert len(seen) == effects


def test_short_waits_are_put_together() -> None:
    board, seen = _board()

    def watch() -> None:
        for _ in range(20):
            board.sleep(0.5)
        seen.append("done")

    board.run(Process("watcher", random.Random(1), may_wait=True, grain_seconds=4.99), watch)
    turns = 0
    while board.paused:
        turns += 1
        board.clock.advance(5.0)
        board.resume_due()
    assert (turns, seen, board.clock.elapsed_seconds()) == (2, ["done"], 10.0)


def test_time_never_drifts() -> None:
    clock = WorldClock(START)
    for _ in range(1_000):
        clock.advance(0.1)
    assert clock.now() - START == timedelta(seconds=100)


# --- warehouses, tasks, answers


def _writer(claim: str, *relations: str) -> Writer:
    return Writer(claim, "boot", f"run of {claim}", "lake", frozenset(relations))


def test_a_killed_child_writes_for_its_settle_time_and_has_no_process() -> None:
    clock = WorldClock(START)
    warehouses = Warehouses(clock)
    warehouses.begin(_writer("one", "orders"))
    assert warehouses.process_lives("one")
    warehouses.kill("one", "boot", 100)
    assert not warehouses.process_lives("one")
    with pytest.raises(Violation, match="writes still"):
        warehouses.begin(_writer("two", "orders"))
    clock.advance(100)
    warehouses.begin(_writer("two", "orders"))


def test_what_the_platform_ends_is_gone_then_whoever_looks() -> None:
    clock = WorldClock(START)
    warehouses = Warehouses(clock)
    writer = _writer("one", "orders")
    warehouses.bound(writer, 900.0, 0)
    warehouses.begin(writer)
    clock.advance(899)
    assert warehouses.process_lives("one")
    clock.advance(1)
    assert not warehouses.process_lives("one")


def test_a_task_that_stops_is_told_by_an_event() -> None:
    board, _ = _board()
    queues = SimulatedQueues(board)
    queues.calm = True
    tasks = SimulatedTasks(board, queues)
    tasks.start("arn")
    assert tasks.last_statuses(["arn", "other"]) == {"arn": "RUNNING"}
    tasks.stop("arn")
    assert tasks.last_statuses(["arn"]) == {"arn": "STOPPED"}
    assert queues.waiting("task-events") == 1


def test_an_answer_that_retention_forgot_is_compared_no_more() -> None:
    answers = Answers()
    answers.record("request", "run_1", {"at": 1}, run_id="run_1")
    with pytest.raises(Violation):
        answers.record("request", "run_1", {"at": 2}, run_id="run_1")
    answers.forget("run_1")
    answers.record("request", "run_1", {"at": 2}, run_id="run_1")
    answers.refuse("request", "run_1", "not_found")


# --- shrinking


def test_shrinking_keeps_what_is_needed_and_nothing_else() -> None:
    steps = [Step("other", 0.0, number, (Fault(0, "before", "crash"),)) for number in range(60)]

    def still_fails(kept: Sequence[Step]) -> bool:
        return {7, 41} <= {step.chance for step in kept}

    short = shrink(steps, still_fails)
    assert [step.chance for step in short] == [7, 41]
    assert all(step.faults == () for step in short)
