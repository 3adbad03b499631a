from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.cron import local_slot
from chalicelib.kernel.errors import InvalidSchedule
from chalicelib.kernel.limits import SKIPPED_COUNT_MAX
from chalicelib.schedules.model import Cursor, Due, ScheduleSpec
from chalicelib.schedules.plan import edited_cursor, first_cursor, next_due_at, plan, previous_due_at, resumed_cursor
from tests.unit.cron.cron_oracle import MINUTE, SECOND, Change, at, expected, kinds_of_change

NEW_YORK = "America/New_York"
DAILY = ScheduleSpec("0 6 * * *", "UTC")
HOUR = timedelta(hours=1)
STEP = timedelta(minutes=10)
PARTS = 2


def ticks(spec: ScheduleSpec, cursor: Cursor, begin: datetime, end: datetime, step: timedelta) -> list[Due]:
    """What a clock that moves in steps writes."""
    found, now = [], begin
    while now <= end:
        due = plan(spec, cursor, now)
        if due is not None:
            found.append(due)
            cursor = due.cursor(spec)
        now += step
    return found


def test_nothing_is_due_before_the_first_occurrence_after_creation() -> None:
    cursor = first_cursor(DAILY, at("2026-03-01T06:00:00Z"))
    assert plan(DAILY, cursor, at("2026-03-01T06:00:01Z")) is None
    assert plan(DAILY, cursor, at("2026-03-02T05:59:59.999999Z")) is None
    assert next_due_at(DAILY, cursor) == at("2026-03-02T06:00Z")
    due = plan(DAILY, cursor, at("2026-03-02T06:00Z"))
    assert due == Due(at("2026-03-02T06:00Z"), "2026-03-02T06:00", skipped=0, lateness_seconds=0.0)


def test_the_latest_is_ticked_and_those_before_it_are_counted() -> None:
    cursor = first_cursor(DAILY, at("2026-03-01T12:00Z"))
    due = plan(DAILY, cursor, at("2026-03-11T06:00:30Z"))
    assert due == Due(at("2026-03-11T06:00Z"), "2026-03-11T06:00", skipped=9, lateness_seconds=30.0)
    assert plan(DAILY, due.cursor(DAILY), at("2026-03-11T06:00:30Z")) is None


def test_skipped_counts_strictly_between_the_cursor_and_the_tick() -> None:
    spec = ScheduleSpec("* * * * *", "UTC")
    cursor = Cursor(at("2026-03-01T00:00Z"), "2026-03-01T00:00", spec.spec_hash)
    counts = [plan(spec, cursor, at("2026-03-01T00:00Z") + minutes * MINUTE) for minutes in (1, 2, 1000, 1001)]
    assert [due.skipped for due in counts if due] == [0, 1, 999, 1000]
    much_later = plan(spec, cursor, at("2027-03-01T00:00:59Z"))
    assert much_later == Due(at("2027-03-01T00:00Z"), "2027-03-01T00:00", SKIPPED_COUNT_MAX, 59.0)


def test_a_clock_that_went_back_makes_nothing_due() -> None:
    cursor = Cursor(at("2026-03-02T06:00Z"), "2026-03-02T06:00", DAILY.spec_hash)
    assert plan(DAILY, cursor, at("2026-03-02T05:00Z")) is None
    assert edited_cursor(replace(DAILY, cron="0 7 * * *"), cursor, at("2026-03-02T05:00Z")).scheduled_for == at(
        "2026-03-02T06:00Z"
    )
    assert resumed_cursor(DAILY, cursor, at("2026-03-02T05:00Z")) == cursor


def test_an_identical_save_keeps_the_cursor() -> None:
    cursor = first_cursor(DAILY, at("2026-03-01T06:00Z"))
    assert edited_cursor(replace(DAILY), cursor, at("2026-03-05T06:00Z")) is cursor


@pytest.mark.parametrize(
    "changed",
    [
        replace(DAILY, cron="0 5 * * *"),
        replace(DAILY, timezone="Europe/Berlin"),
        replace(DAILY, on_resume="run_latest"),
    ],
)
def test_an_edit_acts_only_on_what_follows_it(changed: ScheduleSpec) -> None:
    cursor = first_cursor(DAILY, at("2026-03-01T06:00Z"))
    edited = edited_cursor(changed, cursor, at("2026-03-05T09:00Z"))
    assert edited == Cursor(
        at("2026-03-05T09:00Z"), local_slot(changed.timezone, at("2026-03-05T09:00Z")), changed.spec_hash
    )
    assert plan(changed, edited, at("2026-03-05T23:00Z")) is None
    assert plan(changed, edited, at("2026-03-06T07:00Z")) is not None


def test_resuming_starts_now_or_with_the_latest_that_was_missed() -> None:
    enabled_at = at("2026-03-05T09:00Z")
    cursor = first_cursor(DAILY, at("2026-03-01T06:00Z"))
    assert plan(DAILY, resumed_cursor(DAILY, cursor, enabled_at), enabled_at) is None
    latest = replace(DAILY, on_resume="run_latest")
    kept = resumed_cursor(latest, first_cursor(latest, at("2026-03-01T06:00Z")), enabled_at)
    due = plan(latest, kept, enabled_at)
    assert due is not None
    assert (due.scheduled_for, due.skipped) == (at("2026-03-05T06:00Z"), 3)
    assert plan(latest, due.cursor(latest), enabled_at + HOUR) is None


def test_a_zone_update_does_not_tick_a_slot_of_a_fixed_schedule_twice() -> None:
    """5.3: the cursor stands on 09:00 as it was placed before the update, one hour earlier than now."""
    spec = ScheduleSpec("0,30 8-9 * * *", "Europe/Berlin")
    cursor = Cursor(at("2026-03-20T07:00Z"), "2026-03-20T09:00", spec.spec_hash)
    assert [plan(spec, cursor, at(f"2026-03-20T{text}Z")) for text in ("07:30", "08:00", "08:29")] == [None] * 3
    assert next_due_at(spec, cursor) == at("2026-03-20T08:30Z")
    due = plan(spec, cursor, at("2026-03-21T07:00Z"))
    assert due is not None
    assert (due.local_slot, due.skipped) == ("2026-03-21T08:00", 1)


def test_a_zone_update_does_not_hold_back_another_spec_or_a_frequent_schedule() -> None:
    spec = ScheduleSpec("0 9 * * *", "Europe/Berlin")
    other = Cursor(at("2026-03-20T07:00Z"), "2026-03-20T09:00", "hash of an earlier spec")
    assert plan(spec, other, at("2026-03-20T08:00Z")) is not None
    frequent = ScheduleSpec("0 * * * *", NEW_YORK)
    first_pass = Cursor(at("2026-11-01T05:00Z"), "2026-11-01T01:00", frequent.spec_hash)
    second_pass = plan(frequent, first_pass, at("2026-11-01T06:00Z"))
    assert second_pass is not None
    assert second_pass.local_slot == first_pass.local_slot


def test_a_schedule_that_cannot_be_computed_is_an_error_of_its_own() -> None:
    """S20: the caller alerts for this one and goes on with the others."""
    broken = ScheduleSpec("0 6 * * *", "Gone/Zone")
    cursor = Cursor(at("2026-03-01T00:00Z"), "2026-03-01T00:00", broken.spec_hash)
    with pytest.raises(InvalidSchedule, match="timezone: "):
        plan(broken, cursor, at("2026-03-02T00:00Z"))


def test_a_schedule_without_any_further_occurrence_is_never_due() -> None:
    never = ScheduleSpec("* * */20 * 1L", "UTC")
    cursor = first_cursor(never, at("2026-03-01T00:00Z"))
    assert next_due_at(never, cursor) is None
    assert plan(never, cursor, at("2046-03-01T00:00Z")) is None


def crons_a_step_apart(change: Change) -> list[str]:
    hour = change.wall_before.hour
    return [
        f"30 {hour} * * *",
        f"0 {(hour - 1) % 24},{hour},{(hour + 1) % 24} * * *",
        f"*/20 {hour},{(hour - 1) % 24} * * *",
        "*/10 * * * *",
        "5 */2 * * *",
    ]


@pytest.mark.parametrize("part", range(PARTS))
def test_stepping_ten_minutes_over_any_clock_change_ticks_each_occurrence_once(part: int) -> None:
    """S17, for one change of each kind that any zone knows."""
    stepped = 0
    for change in kinds_of_change()[part::PARTS]:
        begin = (change.instant - abs(change.after - change.before) - 24 * HOUR).replace(second=0)
        end = change.instant + abs(change.after - change.before) + 24 * HOUR
        for cron in crons_a_step_apart(change):
            spec = ScheduleSpec(cron, change.timezone)
            wanted = expected(cron, change.timezone, begin, end)
            if any(later - earlier < STEP for earlier, later in pairwise(wanted)):
                continue
            cursor = first_cursor(spec, begin - SECOND)
            found = ticks(spec, cursor, begin + 3 * MINUTE, end + STEP, STEP)
            assert [due.scheduled_for for due in found if due.scheduled_for < end] == wanted, spec
            assert {due.skipped for due in found} <= {0}, spec
            keys = [(due.local_slot, due.scheduled_for) for due in found]
            assert len(set(keys)) == len(keys), spec
            stepped += 1
    assert stepped > 4 * len(kinds_of_change()[part::PARTS])


@settings(max_examples=150, deadline=None)
@given(
    cron=st.sampled_from(["30 1 * * *", "0,30 1-3 * * *", "*/15 1 * * *", "0 * * * *", "0 2,3 * * *", "@daily"]),
    timezone=st.sampled_from([NEW_YORK, "Australia/Lord_Howe", "Europe/Berlin", "UTC"]),
    start=st.sampled_from(["2026-03-08T06:00Z", "2026-11-01T05:00Z", "2026-10-25T00:00Z", "2026-04-04T14:30Z"]),
    created=st.integers(0, 36 * 3600),
    waited=st.lists(st.integers(0, 30 * 3600), min_size=1, max_size=8),
)
def test_due_is_exactly_what_next_due_at_says(
    cron: str, timezone: str, start: str, created: int, waited: list[int]
) -> None:
    spec, now = ScheduleSpec(cron, timezone), at(start) + created * SECOND - 12 * HOUR
    cursor = first_cursor(spec, now)
    for seconds in waited:
        now += seconds * SECOND
        owed = next_due_at(spec, cursor)
        due = plan(spec, cursor, now)
        assert owed is not None
        assert (due is not None) == (owed <= now)
        if due is not None:
            assert cursor.scheduled_for < owed <= due.scheduled_for <= now
            assert (due.skipped == 0) == (owed == due.scheduled_for)
            cursor = due.cursor(spec)


def test_the_previous_occurrence_is_strictly_earlier() -> None:
    assert previous_due_at(DAILY, at("2026-03-05T06:00Z")) == at("2026-03-04T06:00Z")
    assert previous_due_at(ScheduleSpec("30 1 * * *", NEW_YORK), at("2026-11-02T06:30Z")) == at("2026-11-01T05:30Z")
