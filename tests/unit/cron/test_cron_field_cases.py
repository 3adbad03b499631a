"""Section 1 of the field cases, as far as they concern an expression alone; cursors are in tests/unit/schedules."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.cron import local_slot, next_after, occurrences_between, preview, previous_at, validate
from chalicelib.kernel.errors import InvalidSchedule
from tests.unit.cron.cron_oracle import MINUTE, at

NEW_YORK = "America/New_York"
NOW = at("2026-01-02T12:00Z")


def following(cron: str, timezone: str, after: str, count: int) -> list[datetime]:
    instant, found = at(after), []
    for _ in range(count):
        due = next_after(cron, timezone, instant)
        assert due is not None
        found.append(due)
        instant = due
    return found


def refused_fields(cron: str, timezone: str = "UTC") -> list[str]:
    with pytest.raises(InvalidSchedule) as caught:
        validate(cron, timezone, after=NOW)
    return [problem.field for problem in caught.value.fields]


def test_br_001_gap_day() -> None:
    """Ours is GAP-END: a fixed schedule moves to the first instant after the gap (5.1)."""
    due = following("30 2 * * *", NEW_YORK, "2026-03-08T06:30Z", 2)
    assert due == [at("2026-03-08T07:00Z"), at("2026-03-09T06:30Z")]


def test_br_002_repeated_hour() -> None:
    """Ours is FIRST: a repeated time of a fixed schedule fires at its first pass only (5.1)."""
    begin, end = at("2026-11-01T05:00Z"), at("2026-11-01T07:00Z")
    latest = {previous_at("30 1 * * *", NEW_YORK, begin + step * MINUTE) for step in range(121)}
    assert {due for due in latest if due and begin <= due <= end} == {at("2026-11-01T05:30Z")}
    assert next_after("30 1 * * *", NEW_YORK, at("2026-11-01T05:30Z")) == at("2026-11-02T06:30Z")


def test_br_004_half_hour_change() -> None:
    """The zone's real offset difference decides; the gap side is GAP-END (5.1)."""
    due = occurrences_between(
        "45 1 * * *", "Australia/Lord_Howe", after=at("2026-04-04T00:00Z"), before=at("2026-04-05T12:00Z")
    )
    assert list(due) == [at("2026-04-04T14:45Z")]
    moved = next_after("15 2 * * *", "Australia/Lord_Howe", at("2026-10-03T00:00Z"))
    assert moved == at("2026-10-03T15:30Z")
    assert local_slot("Australia/Lord_Howe", moved) == "2026-10-04T02:30"


def test_br_005_hours_after_the_gap() -> None:
    """Times that exist on the change day are normal times (5.1)."""
    assert next_after("30 7 * * *", NEW_YORK, at("2023-03-11T13:00Z")) == at("2023-03-12T11:30Z")


def test_br_007_weekday_list_over_a_change() -> None:
    """0 and 7 are Sunday (5.1)."""
    expected = [at("2021-03-14T06:00Z"), at("2021-03-15T05:00Z"), at("2021-03-16T05:00Z")]
    for weekdays in ("0-4", "SUN-THU", "7,1-4"):
        assert following(f"0 0 * * {weekdays}", "America/Chicago", "2021-03-12T06:00Z", 3) == expected


def test_br_008_hours_before_the_change() -> None:
    """Next is a pure function of wall time; no offset of the asking time leaks in (5.1)."""
    due = following("10 0 * * *", "America/Montreal", "2023-03-12T05:10:02Z", 4)
    assert due == [at(f"2023-03-{day}T04:10Z") for day in (13, 14, 15, 16)]


def test_br_010_every_two_hours_over_the_gap() -> None:
    """Hour starts with a star: frequent, nothing is moved, no instant twice (5.1)."""
    due = following("0 */2 * * *", "America/Toronto", "2023-03-12T04:59Z", 4)
    assert due == [at(f"2023-03-12T{hour:02}:00Z") for hour in (5, 8, 10, 12)]


def test_br_011_list_of_hours_in_autumn() -> None:
    """Next from an existing slot is strictly later (5.1); a conflict only moves the cursor (5.4)."""
    due = following("15 7,8,13,19 * * *", "Europe/Brussels", "2023-10-28T18:00Z", 4)
    assert due == [at(f"2023-10-29T{text}Z") for text in ("06:15", "07:15", "12:15", "18:15")]
    quarter = following("0,15,30,45 6-22 * * *", "Europe/Brussels", "2023-10-28T20:45Z", 2)
    assert quarter == [at("2023-10-29T05:00Z"), at("2023-10-29T05:15Z")]


def test_br_013_window_of_a_manual_run_on_a_change_day() -> None:
    """prev(t) <= t, and the window before it has a length (5.1); that a cursor stays is S21."""
    asked = at("2024-03-10T07:30Z")
    end = previous_at("0 2 * * *", NEW_YORK, asked)
    assert end == at("2024-03-10T07:00Z")
    assert previous_at("0 2 * * *", NEW_YORK, end - timedelta(seconds=1)) == at("2024-03-09T07:00Z")
    assert next_after("0 2 * * *", NEW_YORK, asked) == at("2024-03-11T06:00Z")
    autumn = previous_at("0 1 * * *", NEW_YORK, at("2024-11-03T05:30Z"))
    assert autumn == at("2024-11-03T05:00Z")


def test_br_014_weekly_over_a_short_day() -> None:
    """Days are calendar days (5.1)."""
    assert next_after("0 12 * * 0", "Europe/Berlin", at("2022-03-24T11:00Z")) == at("2022-03-27T10:00Z")


def test_br_016_no_hidden_state() -> None:
    """Next is pure: the same from a fresh and from a long-used process (5.1); five fields only."""
    ask = at("2026-03-31T21:55:01Z")
    assert next_after("55 * * * *", "Europe/Belgrade", ask) == at("2026-03-31T22:55Z")
    following("55 * * * *", "Europe/Belgrade", "2026-03-29T00:00Z", 200)
    assert next_after("55 * * * *", "Europe/Belgrade", ask) == at("2026-03-31T22:55Z")
    assert next_after("55 * * * *", "Europe/Belgrade", at("2026-03-29T21:55:01Z")) == at("2026-03-29T22:55Z")


def test_br_017_strictly_later_in_the_repeated_hour() -> None:
    """next(t) > t strictly (5.1); test_cron_occurrences.py walks every zone and change."""
    assert next_after("30 * * * *", "Europe/Helsinki", at("2017-10-29T01:45Z")) == at("2017-10-29T02:30Z")
    assert following("0 */2 * * *", "Europe/London", "2024-10-26T23:30Z", 2) == [
        at("2024-10-27T02:00Z"),
        at("2024-10-27T04:00Z"),
    ]


def test_br_019_wall_clock_and_never_in_the_past() -> None:
    """Cron follows the wall clock (5.1); sensors have the intervals, of elapsed time (6.1)."""
    assert following("0 9 * * *", "America/Toronto", "2026-03-07T00:00Z", 2) == [
        at("2026-03-07T14:00Z"),
        at("2026-03-08T13:00Z"),
    ]
    inside = at("2026-11-01T06:10Z")
    for cron in ("30 1 * * *", "0 1 * * *", "*/5 1 * * *", "0 * * * *", "0 */2 * * *"):
        due = next_after(cron, NEW_YORK, inside)
        assert due is not None
        assert due > inside


def test_br_020_expression_and_zone_are_kept() -> None:
    """The zone is stored with the expression (5.1): summer time follows."""
    kept = validate("0 3 * * *", "Europe/London", after=at("2026-01-10T00:00Z"))
    assert (kept.cron, kept.timezone) == ("0 3 * * *", "Europe/London")
    assert next_after(kept.cron, kept.timezone, at("2026-07-01T00:00Z")) == at("2026-07-01T02:00Z")


@pytest.mark.parametrize("timezone", ["Europe/Brusels", "", "  ", "-00:00", "Local", "../UTC", "utc "])
def test_br_022_unknown_zone(timezone: str) -> None:
    """An unknown or empty zone is refused, never replaced by UTC (5.2)."""
    assert refused_fields("0 0 * * *", timezone) == ["timezone"]


def test_br_023_fixed_offset_abbreviation() -> None:
    """Ours accepts with a warning that names a region (5.1); the preview shows the time there too."""
    shown = preview("0 9 * * 1", "EST", at("2026-07-01T00:00Z"), 1)
    assert "America/New_York" in shown.warnings[0]
    assert shown.occurrences[0].region_time == "2026-07-06T10:00:00-04:00 EDT America/New_York"
    assert validate("0 9 * * 1", "UTC", after=NOW).warnings == ()


def test_br_025_leap_days() -> None:
    """The search reaches 50 years both ways (5.2)."""
    assert next_after("0 9 29 2 *", "UTC", at("2016-02-29T09:00Z")) == at("2020-02-29T09:00Z")
    assert next_after("0 9 29 2 *", "UTC", at("2096-02-29T09:00Z")) == at("2104-02-29T09:00Z")
    assert previous_at("15 22 29 2 *", "UTC", at("2024-02-29T00:00Z")) == at("2020-02-29T22:15Z")
    assert validate("0 9 29 2 *", "UTC", after=at("2097-01-01T00:00Z")).warnings == ()


def test_br_026_day_of_month_and_day_of_week() -> None:
    """Ours is cron's: a field that starts with a star makes both needed, else one is enough (5.1)."""
    days = following("30 0 1 * 1", "UTC", "2026-05-31T12:00Z", 6)
    assert [due.strftime("%m-%d") for due in days] == ["06-01", "06-08", "06-15", "06-22", "06-29", "07-01"]
    daily = following("0 9 1-31 * 1", "UTC", "2026-06-01T00:00Z", 10)
    assert [due.day for due in daily] == list(range(1, 11))
    assert [due.day for due in following("0 0 * * */2", "UTC", "2026-01-02T12:00Z", 3)] == [3, 4, 6]
    assert [due.day for due in following("0 0 */5 * 0-6", "UTC", "2026-11-09T12:00Z", 2)] == [11, 16]
    mondays = following("0 9 */2 * 1", "UTC", "2026-06-01T00:00Z", 3)
    assert [due.strftime("%m-%d") for due in mondays] == ["06-01", "06-15", "06-29"]


def test_br_026_the_preview_states_the_rule() -> None:
    """Stated in the preview whenever both fields are given (5.1)."""
    either = preview("30 0 1 * 1", "UTC", NOW, 1).day_rule
    both = preview("0 9 */2 * 1", "UTC", NOW, 1).day_rule
    assert either is not None
    assert "day of month 1 or day of week 1" in either
    assert both is not None
    assert "both day of month */2 and day of week 1" in both
    assert preview("0 0 * * */2", "UTC", NOW, 1).day_rule is None


@pytest.mark.parametrize(
    ("cron", "field"),
    [
        ("0 8 * * FRI-MON", "day_of_week"),
        ("58-2/2 * * * *", "minute"),
        ("*/90 * * * *", "minute"),
        ("30-40/20 * * * *", "minute"),
        ("0 22-4 * * *", "hour"),
        ("0 0 28-3 * *", "day_of_month"),
        ("0 0 1 NOV-FEB *", "month"),
        ("0 */24 * * *", "hour"),
        ("0 0 */31 * *", "day_of_month"),
        ("0 0 1 */12 *", "month"),
        ("0 0 * * */7", "day_of_week"),
        ("5-5/10 * * * *", "minute"),
    ],
)
def test_br_028_wrap_around_and_dead_steps(cron: str, field: str) -> None:
    """Both are refused with the field named (5.2)."""
    assert refused_fields(cron) == [field]


@pytest.mark.parametrize("cron", ["0 17 * * MON_FRI", "0 0 * * L", "0 0 * * MON-", "0 0 * * 1#6", "0 0 * * XL"])
def test_br_029_nonsense_is_refused_when_saved(cron: str) -> None:
    """Unknown tokens are refused (5.2)."""
    assert refused_fields(cron) == ["day_of_week"]


CHARACTERS = st.text(alphabet="0123456789*/-,#LWlw SUNMONjan@?", min_size=1, max_size=24)
TOKENS = st.sampled_from(
    ["*", "0", "1", "7", "29", "31", "L", "LW", "5L", "1#5", "MON", "FEB", "1-5", "*/2", "*/15", "2/3"]
)
FIELD_TEXT = st.lists(TOKENS, min_size=1, max_size=2).map(",".join)
FIVE = st.lists(FIELD_TEXT, min_size=5, max_size=5).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(cron=st.one_of(FIVE, CHARACTERS))
def test_br_029_whatever_is_accepted_fires_five_times(cron: str) -> None:
    """Any text is either refused naming a field, or has five next runs (5.2)."""
    try:
        accepted = validate(cron, NEW_YORK, after=NOW)
    except InvalidSchedule as refused:
        known = {"cron", "minute", "hour", "day_of_month", "month", "day_of_week"}
        assert {problem.field for problem in refused.fields} <= known  # noqa: PT017 - both outcomes are checked
        assert refused.fields  # noqa: PT017 - both outcomes are checked
        return
    runs = following(accepted.cron, accepted.timezone, "2026-01-02T12:00Z", 5)
    assert runs == sorted(set(runs))
    assert validate(accepted.expanded, NEW_YORK, after=NOW).expanded == accepted.expanded
