from __future__ import annotations

from datetime import datetime

import pytest

from chalicelib.cron import validate
from chalicelib.kernel.clock import Clock
from chalicelib.kernel.errors import InvalidSchedule
from chalicelib.kernel.limits import CRON_TEXT_CHARACTERS
from tests.unit.cron.cron_oracle import at

NOW = at("2026-01-01T00:00Z")


def refused(cron: str, timezone: str = "UTC", clock: Clock | None = None) -> InvalidSchedule:
    with pytest.raises(InvalidSchedule) as caught:
        validate(cron, timezone, after=NOW, clock=clock)
    return caught.value


@pytest.mark.parametrize(
    ("cron", "field", "code"),
    [
        ("* * * *", "cron", "wrong_field_count"),
        ("* * * * * *", "cron", "wrong_field_count"),
        ("TZ=UTC * * * * *", "cron", "wrong_field_count"),
        ("", "cron", "empty"),
        (" \t ", "cron", "empty"),
        ("0 0 * * 1 ", "", ""),
        ("0 0 ² * *", "cron", "unknown_token"),
        ("0 0 * *\n*", "cron", "unknown_token"),
        ("@reboot", "cron", "unknown_macro"),
        ("@Daily 1", "cron", "unknown_macro"),
        ("@fortnightly", "cron", "unknown_macro"),
        ("60 * * * *", "minute", "unknown_token"),
        ("-1 * * * *", "minute", "unknown_token"),
        ("1,,2 * * * *", "minute", "unknown_token"),
        ("*/0 * * * *", "minute", "unknown_token"),
        ("*/x * * * *", "minute", "unknown_token"),
        ("1/2/3 * * * *", "minute", "unknown_token"),
        ("1-2-3 * * * *", "minute", "unknown_token"),
        ("** * * * *", "minute", "unknown_token"),
        ("? * * * *", "minute", "unknown_token"),
        ("0 24 * * *", "hour", "unknown_token"),
        ("0 MON * * *", "hour", "unknown_token"),
        ("0 0 0 * *", "day_of_month", "unknown_token"),
        ("0 0 L-3 * *", "day_of_month", "unknown_token"),
        ("0 0 L/2 * *", "day_of_month", "unknown_token"),
        ("0 0 LW/2 * *", "day_of_month", "unknown_token"),
        ("0 0 W * *", "day_of_month", "unknown_token"),
        ("0 0 1 13 *", "month", "unknown_token"),
        ("0 0 1 JANUARY *", "month", "unknown_token"),
        ("0 0 * * 8", "day_of_week", "unknown_token"),
        ("0 0 * * FRIL", "day_of_week", "unknown_token"),
        ("0 0 * * 1#0", "day_of_week", "unknown_token"),
        ("0 0 * * 5L/2", "day_of_week", "unknown_token"),
        ("0 0 30 2 *", "day_of_month", "never_fires"),
        ("0 0 31 4,6,9,11 *", "day_of_month", "never_fires"),
    ],
)
def test_what_is_wrong_is_named(cron: str, field: str, code: str) -> None:
    if not code:
        assert validate(cron, "UTC", after=NOW).expanded == "0 0 * * 1"
        return
    assert [(problem.field, problem.code) for problem in refused(cron).fields] == [(field, code)]


def test_every_wrong_field_is_named_at_once() -> None:
    problem = refused("61 25 32 13 8", "Nowhere/Here")
    names = ["minute", "hour", "day_of_month", "month", "day_of_week", "timezone"]
    assert [one.field for one in problem.fields] == names
    assert all(f"{name}: " in problem.detail for name in names)


def test_a_pair_of_day_fields_that_never_meet_names_both() -> None:
    assert [one.field for one in refused("* * */20 * 1L").fields] == ["day_of_month", "day_of_week"]


def test_a_frequent_schedule_whose_times_always_fall_into_the_gap_never_fires() -> None:
    problem = refused("*/5 2 * 3 SUN#2", "America/New_York")
    assert [(one.field, one.code) for one in problem.fields] == [("hour", "never_fires")]
    assert validate("30 2 * 3 SUN#2", "America/New_York", after=NOW).warnings == ()
    assert validate("*/5 2 * 3 SUN#2", "UTC", after=NOW).warnings == ()


@pytest.mark.parametrize(
    ("cron", "advice"),
    [
        ("0 8 * * FRI-MON", "FRI-SAT,SUN-MON"),
        ("0 8 * * FRI-SUN", "5-7"),
        ("0 22-4 * * *", "22-23,0-4"),
        ("0 23-0 * * *", "23,0"),
        ("0 0 1 NOV-FEB *", "NOV-DEC,JAN-FEB"),
        ("@dayly", "@daily"),
        ("* * * * * *", "neither seconds nor years"),
    ],
)
def test_the_error_says_what_to_write(cron: str, advice: str) -> None:
    assert advice in refused(cron).detail
    if "," in advice or "-" in advice:
        position = next(index for index, text in enumerate(cron.split()) if "-" in text)
        fields = cron.split()
        fields[position] = advice
        assert validate(" ".join(fields), "UTC", after=NOW).expanded == " ".join(fields)


@pytest.mark.parametrize(
    ("timezone", "near"),
    [
        ("Europe/Brusels", "Europe/Brussels"),
        ("europe/berlin", "Europe/Berlin"),
        ("America/NewYork", "America/New_York"),
        ("PST", "America/Los_Angeles"),
        ("CEST", "Europe/Berlin"),
    ],
)
def test_a_misspelt_zone_is_answered_with_the_near_one(timezone: str, near: str) -> None:
    assert near in refused("0 0 * * *", timezone).detail


@pytest.mark.parametrize(
    ("timezone", "region"), [("EST", "America/New_York"), ("MST", "America/Denver"), ("HST", "Pacific/Honolulu")]
)
def test_a_fixed_offset_abbreviation_is_accepted_with_a_warning(timezone: str, region: str) -> None:
    (warning,) = validate("0 9 * * *", timezone, after=NOW).warnings
    assert timezone in warning
    assert region in warning


@pytest.mark.parametrize("timezone", ["UTC", "Etc/UTC", "Europe/Berlin", "America/Argentina/Ushuaia", "US/Central"])
def test_regions_and_utc_carry_no_warning(timezone: str) -> None:
    assert validate("0 9 * * *", timezone, after=NOW).warnings == ()


def test_text_that_is_too_long_is_not_read() -> None:
    longest = ",".join(str(minute) for minute in range(60)) + " * * * *"
    assert validate(longest, "UTC", after=NOW).expanded == longest
    assert refused("1," * CRON_TEXT_CHARACTERS + "1 * * * *").fields[0].code == "too_long"


class LeapingClock:
    """Each look at the stopwatch finds another 0.4 s gone: a machine that hardly runs."""

    def __init__(self) -> None:
        self.looks = 0

    def now(self) -> datetime:
        return NOW

    def elapsed_seconds(self) -> float:
        self.looks += 1
        return 0.4 * self.looks

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"validation does not wait, not even {seconds} s")


def test_the_hard_stop_ends_a_search_and_says_so() -> None:
    clock = LeapingClock()
    assert refused("* * */20 * 1L", clock=clock).fields[0].code == "too_slow"
    assert clock.looks == 4
    assert validate("* * * * *", "UTC", after=NOW, clock=LeapingClock()).warnings == ()


@pytest.mark.parametrize(
    ("cron", "timezone"),
    [
        ("0 0 1 1 *", "Pacific/Kiritimati"),
        ("30 0 1 1 *", "Pacific/Kiritimati"),
        ("59 23 31 12 *", "Pacific/Pago_Pago"),
        ("0 0 29 2 *", "America/New_York"),
    ],
)
def test_the_edges_of_a_year_are_not_lost_between_two_looks(cron: str, timezone: str) -> None:
    for after in ("2025-12-31T09:59Z", "2026-01-01T11:00Z", "2097-03-01T00:00Z"):
        assert validate(cron, timezone, after=at(after)).timezone == timezone
