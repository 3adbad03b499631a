from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from chalicelib.cron import next_after, preview
from chalicelib.kernel.errors import InvalidRequest, InvalidSchedule
from chalicelib.kernel.limits import PREVIEW_OCCURRENCES_MAX
from tests.unit.cron.cron_oracle import at

NEW_YORK = "America/New_York"


def test_each_occurrence_is_what_the_scheduler_finds() -> None:
    after = at("2026-10-30T00:00Z")
    shown = preview("@hourly", NEW_YORK, after, PREVIEW_OCCURRENCES_MAX)
    assert (shown.cron, shown.expanded, len(shown.occurrences)) == ("@hourly", "0 * * * *", PREVIEW_OCCURRENCES_MAX)
    instant = after
    for occurrence in shown.occurrences:
        due = next_after("@hourly", NEW_YORK, instant)
        assert due == occurrence.scheduled_for
        instant = due
        assert datetime.fromisoformat(occurrence.local_time) == due


def test_both_passes_are_told_apart_and_the_day_is_marked() -> None:
    shown = preview("30 * * * *", NEW_YORK, at("2026-11-01T03:45Z"), 28).occurrences
    texts = [(one.local_time, one.abbreviation) for one in shown[1:3]]
    assert texts == [("2026-11-01T01:30:00-04:00", "EDT"), ("2026-11-01T01:30:00-05:00", "EST")]
    marked = [one.local_time[:10] for one in shown if one.zone_change]
    assert set(marked) == {"2026-11-01"}
    assert len(marked) == 25


@pytest.mark.parametrize(
    ("timezone", "day"),
    [
        ("America/New_York", "2026-03-08"),
        ("Australia/Lord_Howe", "2026-04-05"),
        ("America/Havana", "2026-03-08"),
        ("America/Havana", "2025-11-02"),
        ("Asia/Beirut", "2026-03-29"),
        ("Asia/Beirut", "2026-10-24"),
    ],
)
def test_a_change_at_midnight_marks_its_own_date_only(timezone: str, day: str) -> None:
    after = at(day + "T00:00Z") - timedelta(days=3)
    shown = preview("0 12 * * *", timezone, after, 6).occurrences
    assert [one.local_time[:10] for one in shown if one.zone_change] == [day]


def test_fewer_come_when_there_is_no_next_one() -> None:
    shown = preview("0 0 */28 2 1", "UTC", at("2026-01-01T00:00Z"), 10)
    assert all(one.scheduled_for.weekday() == 0 for one in shown.occurrences)
    assert len(shown.occurrences) == 10


@pytest.mark.parametrize("count", [0, -1, PREVIEW_OCCURRENCES_MAX + 1])
def test_the_count_is_bounded(count: int) -> None:
    with pytest.raises(InvalidRequest, match="count: use 1 to 500"):
        preview("@daily", "UTC", at("2026-01-01T00:00Z"), count)


@pytest.mark.parametrize("after", [datetime(2026, 1, 1), at("9999-12-31T00:00Z"), at("0001-01-03T00:00Z")])
def test_the_start_is_an_instant_that_zones_know(after: datetime) -> None:
    with pytest.raises(InvalidRequest, match="after: "):
        preview("@daily", "Europe/Berlin", after, 1)


def test_a_wrong_schedule_is_refused_as_in_validation() -> None:
    with pytest.raises(InvalidSchedule, match="day_of_week: "):
        preview("0 0 * * L", "UTC", at("2026-01-01T00:00Z"), 1)
