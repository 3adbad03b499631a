"""What a backfill does next."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.backfills.model import Range
from chalicelib.backfills.plan import NextStep, Standing, cursor_after, inputs_of, items_after, next_step
from chalicelib.backfills.states import LEAVES_TO, STATES, BackfillState, may_become
from tests.store.world import definition

DAYS = Range(
    "occurrences", "0 6 * * *", "UTC", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 11, tzinfo=UTC), items=10
)
NAMES = [item.name for item in items_after(DAYS, None)]
FREE = Standing("active", max_parallel=2, unfinished=0, job_room=10, job_waits=False, cursor=None)


def begun(standing: Standing, budget: int = 50) -> list[str]:
    return [item.name for item in next_step(DAYS, standing, budget).items]


def test_items_begin_in_order_as_many_as_there_is_room() -> None:
    assert begun(FREE) == NAMES[:2]
    assert begun(replace(FREE, unfinished=1)) == NAMES[:1]
    assert begun(replace(FREE, max_parallel=5, job_room=3)) == NAMES[:3]
    assert begun(replace(FREE, max_parallel=5), budget=1) == NAMES[:1]
    assert begun(replace(FREE, cursor=NAMES[3])) == NAMES[4:6]
    assert begun(replace(FREE, cursor=NAMES[8])) == NAMES[9:]


@pytest.mark.parametrize(
    "full",
    [
        replace(FREE, unfinished=2),
        replace(FREE, unfinished=3),
        replace(FREE, job_room=0),
        replace(FREE, job_room=-1),
        replace(FREE, job_waits=True),
        replace(FREE, state="paused"),
    ],
)
def test_without_room_nothing_begins_and_nothing_ends(full: Standing) -> None:
    assert next_step(DAYS, full, 50) == NextStep()


def test_an_item_that_has_its_run_is_passed_over() -> None:
    assert begun(replace(FREE, made_ahead={NAMES[0], NAMES[2]})) == [NAMES[1], NAMES[3]]


@pytest.mark.parametrize("state", ["active", "paused"])
def test_it_is_completed_when_all_items_began_and_no_run_is_left(state: BackfillState) -> None:
    last = replace(FREE, state=state, cursor=NAMES[-1])
    assert next_step(DAYS, last, 50) == NextStep(ended="completed")
    assert next_step(DAYS, replace(last, unfinished=1), 50) == NextStep()


def test_a_cancelled_one_stops_its_runs_and_has_ended_when_none_is_left() -> None:
    stopping = replace(FREE, state="cancelling")
    assert next_step(DAYS, replace(stopping, unfinished=1), 50) == NextStep(cancel_runs=True)
    assert next_step(DAYS, stopping, 50) == NextStep(ended="cancelled")


@given(st.sets(st.sampled_from(NAMES)), st.integers(1, 5))
def test_whatever_was_made_each_item_begins_once_and_the_cursor_stops_before_the_first_gap(
    made: set[str], room: int
) -> None:
    done: list[str] = sorted(made)
    cursor = cursor_after(DAYS, None, made)
    while items := begun(replace(FREE, max_parallel=room, cursor=cursor, made_ahead=set(done))):
        done += items
        cursor = cursor_after(DAYS, cursor, set(done))
        missing = [name for name in NAMES if name not in done]
        assert cursor is None or not missing or cursor < missing[0]
    assert sorted(done) == NAMES
    assert cursor == NAMES[-1]


def test_an_occurrence_gives_what_its_tick_would_give() -> None:
    job = definition(
        "orders",
        inputs={
            "day": {"type": "date", "default_from": "scheduled_for"},
            "since": {"type": "datetime", "default_from": "previous_scheduled_for"},
            "mode": {"type": "text", "default": "daily"},
        },
    )
    late = replace(DAYS, cron="30 0 * * *", timezone="Asia/Tokyo")
    first = next(items_after(late, None))
    assert inputs_of(late, job, {"mode": "full"}, first) == {
        "day": "2026-01-02", "since": "2025-12-31T15:30:00.000000Z", "mode": "full",
    }  # fmt: skip


def test_a_value_that_was_given_stands_before_the_occurrence() -> None:
    job = definition("orders", inputs={"day": {"type": "date", "default_from": "scheduled_for"}})
    assert inputs_of(DAYS, job, {"day": "2020-02-02"}, next(items_after(DAYS, None))) == {"day": "2020-02-02"}


def test_the_states_are_one_table() -> None:
    ends = {state for state in STATES if state not in LEAVES_TO}
    assert ends == {"completed", "cancelled"}
    assert all(may_become(state, state) for state in STATES)
    allowed = {
        (state, wanted) for state in STATES for wanted in STATES if state != wanted and may_become(state, wanted)
    }
    assert allowed == {(state, wanted) for state, targets in LEAVES_TO.items() for wanted in targets}
    assert not may_become("cancelling", "active")
