"""What a backfill is asked for, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from chalicelib.backfills.model import Range, RangeRequest
from chalicelib.backfills.plan import inputs_of, items_after
from chalicelib.backfills.ranges import checked_range
from chalicelib.kernel.errors import InvalidRequest, InvalidSchedule
from tests.store.world import definition, schedule

NOW = datetime(2026, 12, 1, tzinfo=UTC)
DAILY = schedule("15 6 * * *", "Europe/Berlin", name="orders/schedule")
HOURLY = schedule("0 * * * *", name="orders/hourly")
BOUNDS = {
    "start": {"type": "date", "maps_to": "cursor:start"},
    "end": {"type": "date", "maps_to": "cursor:end"},
}


def asked(over: str = "occurrences", first: str = "2026-01-01", until: str = "2026-02-01", **more: Any) -> RangeRequest:
    place = {"location": "cafe", "target": "dev", "job": "orders"}
    return RangeRequest.model_validate({**place, "over": over, "from": first, "to": until, **more})


def checked(request: RangeRequest, inputs: Mapping[str, Any] | None = None, *triggers: Mapping[str, Any]) -> Range:
    return checked_range(request, definition("orders", inputs=inputs, triggers=triggers or [DAILY]), NOW)


def partitions(declared: Mapping[str, Any], /, **more: Any) -> Range:
    return checked(asked("partitions", **{"step": "day", **more}), declared)


def names(found: Range) -> list[str]:
    return [item.name for item in items_after(found, None)]


def test_occurrences_from_a_day_to_a_day_are_those_of_the_schedule_s_own_zone() -> None:
    found = checked(asked(first="2026-03-28", until="2026-03-31"))
    assert found.schedule == "orders/schedule"
    assert names(found) == [
        "2026-03-28T05:15:00.000000Z", "2026-03-29T04:15:00.000000Z", "2026-03-30T04:15:00.000000Z",
    ]  # fmt: skip
    assert found.items == 3


def test_from_belongs_to_the_range_and_to_does_not() -> None:
    request = asked(first="2026-01-01T05:15:00Z", until="2026-01-02T05:15:00Z")
    assert names(checked(request)) == ["2026-01-01T05:15:00.000000Z"]


def test_two_backfills_one_after_the_other_share_no_item() -> None:
    one, two = checked(asked(until="2026-01-10")), checked(asked(first="2026-01-10", until="2026-01-20"))
    whole = checked(asked(until="2026-01-20"))
    assert [*names(one), *names(two)] == names(whole)


def test_a_job_with_several_schedules_wants_a_name() -> None:
    with pytest.raises(InvalidRequest, match=r"schedule: .*orders/hourly, orders/schedule"):
        checked(asked(), None, DAILY, HOURLY)
    found = checked(asked(schedule="orders/hourly", until="2026-01-02"), None, DAILY, HOURLY)
    assert found.items == 24


@pytest.mark.parametrize(
    ("request_of", "message"),
    [
        (
            asked(schedule="orders/nightly"),
            "schedule: orders has no schedule 'orders/nightly'; it has: orders/schedule",
        ),
        (asked(step="day"), "step: belongs to over=partitions"),
        (asked(first="2026-02-01", until="2026-01-01"), "to: must be later than from"),
        (asked(first="January"), "from: 'January' is neither a date nor an instant"),
        (asked(until="2026-02-01T00:00:00"), "to: .*neither a date nor an instant"),
        (asked(until="2026-12-02"), "to: lies ahead"),
        (asked(first="2026-01-01T07:00:00Z", until="2026-01-01T08:00:00Z"), "to: no occurrence"),
        (asked("partitions", step="day"), "start_input: name the input"),
        (asked("partitions"), "step: say how long"),
        (asked("partitions", schedule="orders/schedule"), "schedule: belongs to over=occurrences"),
    ],
)
def test_a_wrong_field_is_named(request_of: RangeRequest, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        checked(request_of)
    assert refused.value.fields[0].field == message.partition(":")[0]


def test_a_job_without_a_schedule_is_told_of_partitions() -> None:
    with pytest.raises(InvalidRequest, match="over: orders has no schedule; use partitions"):
        checked_range(asked(), definition("orders"), NOW)


def test_more_than_a_thousand_items_are_refused_with_their_number() -> None:
    with pytest.raises(InvalidRequest, match=r"to: 1,095 items .* at most 1,000") as refused:
        checked(asked(first="2023-01-01", until="2025-12-31"))
    assert refused.value.facts == {"items": 1_095}
    with pytest.raises(InvalidRequest, match="more than 10,000"):
        checked(asked(first="2020-01-01", until="2026-01-01"), None, HOURLY)


def test_a_year_of_days_fits() -> None:
    assert checked(asked(first="2025-01-01", until="2026-01-01")).items == 365


# --- partitions


def test_a_partition_gives_its_start_and_the_start_of_the_next_one() -> None:
    found = partitions(BOUNDS, first="2026-02-27", until="2026-03-02")
    job = definition("orders", inputs=BOUNDS)
    assert [inputs_of(found, job, {}, item) for item in items_after(found, None)] == [
        {"start": "2026-02-27", "end": "2026-02-28"},
        {"start": "2026-02-28", "end": "2026-03-01"},
        {"start": "2026-03-01", "end": "2026-03-02"},
    ]
    assert names(found) == ["2026-02-27", "2026-02-28", "2026-03-01"]


def test_the_only_date_takes_the_start_whatever_it_maps_to() -> None:
    found = partitions({"day": {"type": "date"}, "mode": {"type": "text"}})
    assert (found.start_input, found.end_input, found.items) == ("day", None, 31)


def test_several_dates_want_a_name() -> None:
    two = {"day": {"type": "date"}, "month": {"type": "date"}}
    with pytest.raises(InvalidRequest, match="start_input: several inputs would fit; name one of: day, month"):
        partitions(two)
    assert partitions(two, start_input="month").start_input == "month"
    with pytest.raises(InvalidRequest, match="start_input: 'mode' is no input of type date"):
        partitions({**two, "mode": {}}, start_input="mode")


@pytest.mark.parametrize(
    ("step", "first", "until", "items"),
    [
        ("week", "2026-01-05", "2026-02-02", ["2026-01-05", "2026-01-12", "2026-01-19", "2026-01-26"]),
        ("month", "2026-01-01", "2026-04-01", ["2026-01-01", "2026-02-01", "2026-03-01"]),
        ("year", "2024-01-01", "2026-01-01", ["2024-01-01", "2025-01-01"]),
    ],
)
def test_steps_follow_the_calendar(step: str, first: str, until: str, items: list[str]) -> None:
    assert names(partitions(BOUNDS, step=step, first=first, until=until)) == items


def test_a_bound_inside_a_partition_is_refused_with_those_around_it() -> None:
    with pytest.raises(InvalidRequest, match="from: is no start of a month; use 2026-01-01 or 2026-02-01"):
        partitions(BOUNDS, step="month", first="2026-01-15", until="2026-03-01")
    with pytest.raises(InvalidRequest, match="to: is no start of a week"):
        partitions(BOUNDS, step="week", first="2026-01-05", until="2026-01-20")


def test_datetimes_are_cut_at_the_hours_and_midnights_of_the_zone_asked_for() -> None:
    instants = {"start": {"type": "datetime", "maps_to": "cursor:start"}}
    found = partitions(instants, timezone="Europe/Berlin", first="2026-03-28", until="2026-03-31")
    assert names(found) == [
        "2026-03-27T23:00:00.000000Z", "2026-03-28T23:00:00.000000Z", "2026-03-29T22:00:00.000000Z",
    ]  # fmt: skip
    assert (
        partitions(instants, step="hour", timezone="Europe/Berlin", first="2026-03-29", until="2026-03-30").items == 23
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"step": "hour"}, "step: start is a date"),
        ({"timezone": "Europe/Berlin"}, "timezone: a date has none"),
        ({"first": "2026-01-01T00:00:00Z"}, "from: .*is no date"),
        ({"inputs": {"start": "2026-01-01"}}, r"inputs\.start: the partitions give this value"),
        ({"inputs": {"end": "2026-01-01"}}, r"inputs\.end: the partitions give this value"),
    ],
)
def test_what_does_not_fit_dates_is_named(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        partitions(BOUNDS, **more)


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(InvalidSchedule):
        partitions({"at": {"type": "datetime"}}, timezone="Europe/Brusels")


def test_partitions_may_lie_ahead() -> None:
    assert partitions(BOUNDS, first="2027-01-01", until="2027-01-03").items == 2


def test_a_range_survives_its_row() -> None:
    found = partitions(BOUNDS)
    assert Range.from_json(found.to_json()) == found
