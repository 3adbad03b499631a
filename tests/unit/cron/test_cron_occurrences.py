from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.cron import local_slot, next_after, occurrences_between, previous_at
from chalicelib.cron.zones import zone_names
from chalicelib.kernel.errors import InvalidSchedule
from tests.unit.cron.cron_oracle import (
    SECOND,
    Change,
    at,
    changes_of,
    check_series,
    expected,
    kinds_of_change,
)

NEW_YORK = "America/New_York"
PARTS = 4
HOUR = timedelta(hours=1)


def following(cron: str, timezone: str, after: str, count: int) -> list[datetime | None]:
    found: list[datetime | None] = []
    instant = at(after)
    for _ in range(count):
        due = next_after(cron, timezone, instant)
        found.append(due)
        if due is None:
            break
        instant = due
    return found


def test_a_time_in_the_spring_gap_fires_at_its_end() -> None:
    assert following("30 2 * * *", NEW_YORK, "2026-03-07T12:00Z", 2) == [
        at("2026-03-08T07:00Z"),
        at("2026-03-09T06:30Z"),
    ]


def test_a_repeated_time_fires_at_its_first_pass_only() -> None:
    assert following("30 1 * * *", NEW_YORK, "2026-11-01T00:00Z", 2) == [
        at("2026-11-01T05:30Z"),
        at("2026-11-02T06:30Z"),
    ]
    assert next_after("30 1 * * *", NEW_YORK, at("2026-11-01T06:10Z")) == at("2026-11-02T06:30Z")
    assert previous_at("30 1 * * *", NEW_YORK, at("2026-11-01T06:10Z")) == at("2026-11-01T05:30Z")


@pytest.mark.parametrize(("day", "count"), [("2026-11-01", 25), ("2026-03-08", 23), ("2026-06-01", 24)])
def test_a_frequent_schedule_fires_at_every_matching_time_that_elapses(day: str, count: int) -> None:
    around = datetime.fromisoformat(day + "T00:00Z")
    due = occurrences_between("0 * * * *", NEW_YORK, after=around - 24 * HOUR, before=around + 48 * HOUR)
    assert sum(local_slot(NEW_YORK, instant).startswith(day) for instant in due) == count


def test_two_slots_on_one_instant_are_one_occurrence() -> None:
    due = list(
        occurrences_between("0 2,3 * * *", NEW_YORK, after=at("2026-03-08T05:00Z"), before=at("2026-03-09T05:00Z"))
    )
    assert due == [at("2026-03-08T07:00Z")]
    assert local_slot(NEW_YORK, due[0]) == "2026-03-08T03:00"


def test_a_frequent_schedule_is_not_moved_out_of_the_gap() -> None:
    assert next_after("*/20 2 * * *", NEW_YORK, at("2026-03-08T05:00Z")) == at("2026-03-09T06:00Z")


def test_the_two_passes_of_a_frequent_schedule_share_the_slot_but_not_the_instant() -> None:
    first, second = following("30 * * * *", NEW_YORK, "2026-11-01T05:00Z", 2)
    assert (first, second) == (at("2026-11-01T05:30Z"), at("2026-11-01T06:30Z"))
    assert {local_slot(NEW_YORK, due) for due in (first, second) if due} == {"2026-11-01T01:30"}


def test_the_second_pass_is_found_from_within_a_second_of_the_first() -> None:
    late = at("2026-11-01T05:50:36.5Z")
    assert next_after("*/20 1 * * *", NEW_YORK, late) == at("2026-11-01T06:00Z")
    assert previous_at("*/20 1 * * *", NEW_YORK, late) == at("2026-11-01T05:40Z")


def test_an_occurrence_is_not_later_than_itself() -> None:
    due = at("2026-06-01T10:00Z")
    assert previous_at("0 * * * *", "UTC", due) == due
    assert previous_at("0 * * * *", "UTC", due - timedelta(microseconds=1)) == due - HOUR
    assert next_after("0 * * * *", "UTC", due) == due + HOUR
    assert next_after("0 * * * *", "UTC", due - timedelta(microseconds=1)) == due


@pytest.mark.parametrize("cron", ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"])
def test_a_macro_is_the_expression_that_it_stands_for(cron: str) -> None:
    expressions = {"@yearly": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@hourly": "0 * * * *"}
    expressions |= {"@annually": expressions["@yearly"], "@daily": "0 0 * * *", "@midnight": "0 0 * * *"}
    after = "2026-02-10T12:34Z"
    assert following(cron.upper(), "Europe/Berlin", after, 30) == following(
        expressions[cron], "Europe/Berlin", after, 30
    )


@pytest.mark.parametrize(
    ("cron", "days"),
    [
        ("0 0 L * *", ["2026-02-28", "2026-03-31"]),
        ("0 0 LW * *", ["2026-02-27", "2026-03-31"]),
        ("0 0 * * 5L", ["2026-02-27", "2026-03-27"]),
        ("0 0 * * fri#2", ["2026-02-13", "2026-03-13"]),
        ("0 0 * * 7", ["2026-02-01", "2026-02-08"]),
        ("0 0 * * sun", ["2026-02-01", "2026-02-08"]),
        ("0 0 1 mar,Jun *", ["2026-03-01", "2026-06-01"]),
        ("0 0 30/1 jan-MAR *", ["2026-03-30", "2026-03-31"]),
    ],
)
def test_names_and_extensions(cron: str, days: list[str]) -> None:
    due = following(cron, "UTC", "2026-01-31T12:00Z", 2)
    assert [instant.date().isoformat() for instant in due if instant] == days


def test_what_never_fires_has_no_occurrence_in_either_direction() -> None:
    after = at("2026-01-01T00:00Z")
    assert next_after("* * */20 * 1L", "UTC", after) is None
    assert previous_at("* * */20 * 1L", "UTC", after) is None
    assert list(occurrences_between("* * */20 * 1L", "UTC", after=after, before=after + 48 * HOUR)) == []


@pytest.mark.parametrize("edge", [datetime(2, 1, 2, tzinfo=UTC), datetime(9998, 12, 30, tzinfo=UTC)])
def test_the_ends_of_the_calendar_are_no_crash(edge: datetime) -> None:
    due = [next_after("0 0 29 2 *", NEW_YORK, edge), previous_at("0 0 29 2 *", NEW_YORK, edge)]
    assert any(instant is None for instant in due)


def test_an_expression_that_was_never_valid_is_an_error_and_not_a_time() -> None:
    for cron in ("0 0 * *", "0 0 * * L", "0 0 30 2 *"):
        with pytest.raises(InvalidSchedule, match="cron: "):
            next_after(cron, "UTC", at("2026-01-01T00:00Z"))


def crons_around(change: Change) -> list[str]:
    hour = change.wall_before.hour
    return [
        f"30 {hour} * * *",
        f"45 {(hour - 1) % 24} * * *",
        f"0,15,59 {','.join(str((hour + step) % 24) for step in (-1, 0, 1))} * * *",
        f"*/20 {hour},{(hour - 1) % 24} * * *",
        f"* {(hour - 1) % 24} * * {change.wall_before.isoweekday()}",
        "0 */2 * * *",
        "*/10 * * * *",
        "15-45/15 * * * *",
        "0 0 * * *",
    ]


@pytest.mark.parametrize("part", range(PARTS))
def test_every_kind_of_clock_change_in_every_zone(part: int) -> None:
    """S15: strictly increasing, prev(t) <= t < next(t), and both directions are one series."""
    changes = kinds_of_change()[part::PARTS]
    assert len(changes) > 20
    for change in changes:
        width = abs(change.after - change.before) + 2 * HOUR
        begin, end = (change.instant + sign * (width + 24 * HOUR) for sign in (-1, 1))
        begin, end = begin.replace(second=0), end.replace(second=0)
        probes = [
            change.instant + width * step / 16 + offset for step in range(-16, 17) for offset in (-SECOND, SECOND)
        ]
        for cron in crons_around(change):
            check_series(cron, change.timezone, begin, end, probes)


MINUTES = st.sampled_from(["*", "*/7", "*/30", "0", "59", "0,30", "10-50/20", "5/25", "1,2,3", "0-59"])
HOURS = st.sampled_from(["*", "*/2", "*/6", "0", "1", "2", "3", "0-3", "23", "1,2,22", "0/5", "12-23"])
DAYS = st.sampled_from(["*", "*", "*", "1-31", "L", "LW", "*/2", "1,15", "8-14", "25/2"])
WEEKDAYS = st.sampled_from(["*", "*", "*", "SUN", "0-6", "7", "1-5", "SUN#2", "0L", "*/2", "6,7"])
EXPRESSIONS = st.builds(lambda *fields: " ".join(fields), MINUTES, HOURS, DAYS, st.just("*"), WEEKDAYS)


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_any_expression_around_any_change(data: st.DataObject) -> None:
    timezone = data.draw(st.sampled_from(sorted(name for name in zone_names())))
    changes = changes_of(timezone)
    middle = data.draw(st.sampled_from(changes)).instant if changes else at("2026-03-29T01:00Z")
    begin, end = middle - 27 * HOUR, middle + 27 * HOUR
    offsets = data.draw(st.lists(st.integers(-3 * 3600, 3 * 3600), min_size=5, max_size=20))
    probes = [middle + offset * SECOND for offset in offsets]
    check_series(data.draw(EXPRESSIONS), timezone, begin.replace(second=0), end.replace(second=0), probes)


@settings(max_examples=60, deadline=None)
@given(cron=EXPRESSIONS, timezone=st.sampled_from(["UTC", NEW_YORK, "Australia/Lord_Howe", "Africa/Casablanca"]))
def test_counting_in_bulk_gives_the_same_series(cron: str, timezone: str) -> None:
    begin, end = at("2026-10-30T00:00Z"), at("2026-11-03T00:00Z")
    assert list(occurrences_between(cron, timezone, after=begin - SECOND, before=end)) == expected(
        cron, timezone, begin, end
    )
