from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.cron import occurrences_between
from chalicelib.kernel.errors import InvalidRequest
from chalicelib.projects.bundle import JobDefinition
from chalicelib.schedules import playback
from chalicelib.schedules.model import ScheduleSpec
from chalicelib.schedules.playback import PlayedSchedule, PlayedTick, play
from tests.api.site import JOB, index
from tests.unit.cron.cron_oracle import at

NEW_YORK, LORD_HOWE = "America/New_York", "Australia/Lord_Howe"
DAY = timedelta(days=1)


def schedule(cron: str, timezone: str = "UTC", *, name: str = "orders/schedule", **more: Any) -> PlayedSchedule:
    return PlayedSchedule(name, name.partition("/")[0], ScheduleSpec(cron, timezone), **more)


def instants(ticks: Sequence[PlayedTick]) -> list[datetime]:
    return [tick.occurrence.scheduled_for for tick in ticks]


def local_times(*schedules: PlayedSchedule, begin: str, days: int = 1) -> list[tuple[str, str, bool]]:
    ticks = play(schedules, at(begin), at(begin) + days * DAY).ticks
    return [(one.occurrence.local_time, one.occurrence.abbreviation, one.occurrence.zone_change) for one in ticks]


def test_a_time_in_the_spring_gap_is_played_after_it_and_marked() -> None:
    assert local_times(schedule("30 2 * * *", NEW_YORK), begin="2026-03-07T12:00Z", days=2) == [
        ("2026-03-08T03:00:00-04:00", "EDT", True),
        ("2026-03-09T02:30:00-04:00", "EDT", False),
    ]


def test_a_repeated_time_is_played_once_when_fixed_and_twice_when_frequent() -> None:
    begin = "2026-11-01T05:00Z"
    assert local_times(schedule("30 1 * * *", NEW_YORK), begin=begin) == [("2026-11-01T01:30:00-04:00", "EDT", True)]
    assert local_times(schedule("30 * * * *", NEW_YORK), begin=begin)[:2] == [
        ("2026-11-01T01:30:00-04:00", "EDT", True),
        ("2026-11-01T01:30:00-05:00", "EST", True),
    ]


def test_a_period_that_begins_in_the_second_pass_does_not_repeat_the_first() -> None:
    ticks = play([schedule("30 1 * * *", NEW_YORK)], at("2026-11-01T06:00Z"), at("2026-11-03T00:00Z")).ticks
    assert instants(ticks) == [at("2026-11-02T06:30Z")]


def test_lord_howe_moves_its_clocks_by_half_an_hour() -> None:
    daily = schedule("15 2 * * *", LORD_HOWE)
    assert local_times(daily, begin="2026-10-02T20:00Z", days=2) == [
        ("2026-10-04T02:30:00+11:00", "+11", True),
        ("2026-10-05T02:15:00+11:00", "+11", False),
    ]
    hourly = schedule("45 * * * *", LORD_HOWE)
    assert [time for time, _, marked in local_times(hourly, begin="2026-04-04T14:00Z") if marked][:3] == [
        "2026-04-05T01:45:00+11:00",
        "2026-04-05T01:45:00+10:30",
        "2026-04-05T02:45:00+10:30",
    ]


def test_the_begin_is_included_and_the_end_is_not() -> None:
    ticks = play([schedule("0 6 * * *")], at("2026-03-01T06:00Z"), at("2026-03-03T06:00Z")).ticks
    assert instants(ticks) == [at("2026-03-01T06:00Z"), at("2026-03-02T06:00Z")]


@given(
    cron=st.sampled_from(["*/20 * * * *", "30 1,2 * * *", "0 */6 * * *", "15 2 1 * *"]),
    timezone=st.sampled_from(["UTC", NEW_YORK, LORD_HOWE, "Africa/Casablanca"]),
    hours=st.integers(0, 24 * 365),
)
def test_what_is_played_are_the_occurrences_of_the_period(cron: str, timezone: str, hours: int) -> None:
    begin = at("2026-01-01T00:00Z") + timedelta(hours=hours)
    expected = list(occurrences_between(cron, timezone, after=begin - timedelta(seconds=1), before=begin + 3 * DAY))
    assert instants(play([schedule(cron, timezone)], begin, begin + 3 * DAY).ticks) == expected


def test_ticks_of_several_schedules_come_by_instant_and_then_by_name() -> None:
    schedules = [
        schedule("0 6 * * *", name="b/s"),
        schedule("0 7 * * *", name="c/s"),
        schedule("0 6 * * *", name="a/s"),
    ]
    ticks = play(schedules, at("2026-03-01T00:00Z"), at("2026-03-02T00:00Z")).ticks
    assert [tick.schedule for tick in ticks] == ["a/s", "b/s", "c/s"]


def test_of_two_ticks_that_want_one_run_the_later_name_is_covered() -> None:
    schedules = [
        schedule("0 6 * * *", name="orders/daily"),
        schedule("0 * * * *", name="orders/hourly"),
        schedule("0 6 * * *", name="stock/daily"),
    ]
    found = play(schedules, at("2026-03-01T05:30Z"), at("2026-03-01T07:30Z"))
    assert [(tick.schedule, tick.covered_by) for tick in found.ticks] == [
        ("orders/daily", None),
        ("orders/hourly", "orders/daily"),
        ("stock/daily", None),
        ("orders/hourly", None),
    ]
    assert [(minute.ticks, minute.runs) for minute in found.busiest_minutes] == [(3, 2), (1, 1)]


def test_other_inputs_are_another_run() -> None:
    day = {"type": "date", "default_from": "scheduled_for", "maps_to": "var:day"}
    base = index().jobs[JOB].model_dump(mode="json")
    definition = JobDefinition.model_validate({**base, "inputs": {"day": day}})
    tokyo = schedule("0 0 * * *", "Asia/Tokyo", name="orders/tokyo", definition=definition)
    utc = schedule("0 15 * * *", "UTC", name="orders/utc", definition=definition)
    same = schedule("0 15 * * *", "UTC", name="orders/utc-too", definition=definition)
    found = play([tokyo, utc, same], at("2026-03-01T14:00Z"), at("2026-03-01T16:00Z"))
    assert [(tick.schedule, tick.covered_by) for tick in found.ticks] == [
        ("orders/tokyo", None),
        ("orders/utc", None),
        ("orders/utc-too", "orders/utc"),
    ]


def test_the_busiest_minutes_have_the_most_ticks_and_the_earlier_one_goes_first() -> None:
    schedules = [
        schedule("0 * * * *", name="a/s"),
        schedule("0 5,3 * * *", name="b/s"),
        schedule("0 5 * * *", name="c/s"),
    ]
    busiest = play(schedules, at("2026-03-01T00:00Z"), at("2026-03-02T00:00Z")).busiest_minutes
    assert len(busiest) == playback.BUSIEST_MINUTES
    assert [(one.begins_at.hour, one.ticks, one.schedules) for one in busiest[:3]] == [
        (5, 3, ("a/s", "b/s", "c/s")),
        (3, 2, ("a/s", "b/s")),
        (0, 1, ("a/s",)),
    ]


def test_a_schedule_that_cannot_be_computed_does_not_stop_the_others() -> None:
    required = {"type": "text", "required": True, "maps_to": "var:who"}
    base = index().jobs[JOB].model_dump(mode="json")
    definition = JobDefinition.model_validate({**base, "inputs": {"who": required}})
    schedules = [
        schedule("0 6 * * *", "Gone/Zone", name="a/s"),
        schedule("0 6 * * *", name="b/s", definition=definition),
        schedule("0 6 * * *", name="c/s"),
    ]
    found = play(schedules, at("2026-03-01T00:00Z"), at("2026-03-02T00:00Z"))
    assert [tick.schedule for tick in found.ticks] == ["c/s"]
    assert set(found.problems) == {"a/s", "b/s"}
    assert "Gone/Zone" in found.problems["a/s"]
    assert "who" in found.problems["b/s"]


def test_nothing_due_is_no_tick_and_no_busy_minute() -> None:
    found = play([schedule("0 0 29 2 *")], at("2026-03-01T00:00Z"), at("2027-03-01T00:00Z"))
    assert (found.ticks, found.busiest_minutes, found.problems) == ((), (), {})


@pytest.mark.parametrize(
    ("begin", "end", "field", "words"),
    [
        ("2026-03-02T00:00Z", "2026-03-02T00:00Z", "to", "ends before it begins"),
        ("2026-03-02T00:00Z", "2026-03-01T00:00Z", "to", "ends before it begins"),
        ("2026-03-01T00:00Z", "2036-03-20T00:00Z", "to", "longer than 3,660 days"),
        ("0001-03-01T00:00Z", "2026-03-01T00:00Z", "from", "between 1900 and 9000"),
        ("2026-03-01T00:00Z", "9999-03-01T00:00Z", "to", "between 1900 and 9000"),
    ],
)
def test_the_period_is_bounded(begin: str, end: str, field: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        play([], at(begin), at(end))
    assert [one.field for one in refused.value.fields] == [field]


def test_too_many_ticks_are_refused_and_the_error_says_how_far_they_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chalicelib.schedules.playback.PLAYED_TICKS_MAX", 24)
    hourly = schedule("0 * * * *")
    begin = at("2026-03-01T00:00Z")
    assert len(play([hourly], begin, begin + DAY).ticks) == 24
    with pytest.raises(InvalidRequest, match=r"^to: .*more than 24 ticks.*before 2026-03-02T00:00:00Z"):
        play([hourly], begin, begin + 2 * DAY)
