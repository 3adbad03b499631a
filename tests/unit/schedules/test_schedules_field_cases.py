"""Section 1 of the field cases, as far as they concern a cursor; expressions alone are in tests/unit/cron."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from chalicelib.cron import next_after, previous_at
from chalicelib.schedules.model import Cursor, Due, ScheduleSpec
from chalicelib.schedules.plan import edited_cursor, first_cursor, next_due_at, plan, resumed_cursor
from tests.unit.cron.cron_oracle import MINUTE, SECOND, at

NEW_YORK = "America/New_York"


@dataclass
class Ticker:
    """A trigger's state row and its ticks, with the key that the store holds unique."""

    spec: ScheduleSpec
    cursor: Cursor
    ticks: dict[tuple[str, datetime], Due] = field(default_factory=dict)

    def tick(self, now: datetime) -> Due | None:
        due = plan(self.spec, self.cursor, now)
        if due is not None:
            self.ticks.setdefault((due.local_slot, due.scheduled_for), due)
            self.cursor = due.cursor(self.spec)
        return due

    def every_minute(self, begin: datetime, end: datetime) -> None:
        while begin <= end:
            self.tick(begin)
            begin += MINUTE


def created(cron: str, timezone: str, text: str) -> Ticker:
    spec = ScheduleSpec(cron, timezone)
    return Ticker(spec, first_cursor(spec, at(text)))


def test_br_002_ticking_through_the_repeated_hour() -> None:
    """One run for the local slot: a fixed schedule fires at the first pass (5.1)."""
    ticker = created("30 1 * * *", NEW_YORK, "2026-11-01T00:00Z")
    ticker.every_minute(at("2026-11-01T05:00Z"), at("2026-11-01T07:00Z"))
    assert list(ticker.ticks) == [("2026-11-01T01:30", at("2026-11-01T05:30Z"))]
    assert next_due_at(ticker.spec, ticker.cursor) == at("2026-11-02T06:30Z")


def test_br_004_ticking_through_a_half_hour_change() -> None:
    """One run on the local date, by the real offset difference (5.1)."""
    ticker = created("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00Z")
    ticker.every_minute(at("2026-04-04T14:00Z"), at("2026-04-04T17:00Z"))
    assert list(ticker.ticks) == [("2026-04-05T01:45", at("2026-04-04T14:45Z"))]


def test_br_011_a_slot_that_exists_already_only_moves_the_cursor() -> None:
    """A conflict on the tick's key only moves the cursor (5.4), so the next slot is reached."""
    ticker = created("15 7,8,13,19 * * *", "Europe/Brussels", "2023-10-28T18:00Z")
    stale = ticker.cursor
    assert ticker.tick(at("2023-10-29T06:15Z")) is not None
    ticker.cursor = stale
    assert ticker.tick(at("2023-10-29T06:16Z")) is not None
    assert len(ticker.ticks) == 1
    second = ticker.tick(at("2023-10-29T07:15Z"))
    assert second is not None
    assert second.scheduled_for == at("2023-10-29T07:15Z")


def test_br_013_looking_back_for_a_manual_run_leaves_the_cursor_alone() -> None:
    """S21: only plan gives cursors of ticks; asking for a window changes nothing."""
    ticker = created("0 2 * * *", NEW_YORK, "2024-03-09T12:00Z")
    ticker.tick(at("2024-03-10T07:00Z"))
    before = ticker.cursor
    assert previous_at("0 2 * * *", NEW_YORK, at("2024-03-10T07:30Z")) == at("2024-03-10T07:00Z")
    assert ticker.cursor == before
    scheduled = ticker.tick(at("2024-03-11T06:00Z"))
    assert scheduled is not None
    assert scheduled.scheduled_for == at("2024-03-11T06:00Z")


def test_br_016_a_restart_changes_nothing() -> None:
    """All state is the cursor; its stored form gives the same answer (5.3)."""
    ticker = created("55 * * * *", "Europe/Belgrade", "2026-03-28T00:00Z")
    ticker.every_minute(at("2026-03-28T21:00Z"), at("2026-03-29T22:00Z"))
    restarted = Ticker(ticker.spec, Cursor.from_json(ticker.cursor.to_json()))
    now = at("2026-03-31T22:55:02Z")
    assert restarted.tick(now) == ticker.tick(now)


def test_br_031_an_edit_does_not_replay_an_earlier_slot() -> None:
    """S18: an edit acts only on occurrences after the edit."""
    ticker = created("15 1 * * 1-5", "UTC", "2026-06-03T00:00Z")
    assert ticker.tick(at("2026-06-03T01:15Z")) is not None
    ticker.spec = ScheduleSpec("15 2 * * 1-5", "UTC")
    ticker.cursor = edited_cursor(ticker.spec, ticker.cursor, at("2026-06-03T09:00Z"))
    assert ticker.tick(at("2026-06-03T09:01Z")) is None
    assert next_due_at(ticker.spec, ticker.cursor) == at("2026-06-04T02:15Z")


def test_br_032_saving_again_does_not_lose_a_pending_slot() -> None:
    """S18: an identical save changes no cursor. There is no jitter; the tick is late instead."""
    ticker = created("*/5 * * * *", "UTC", "2026-06-03T12:17Z")
    ticker.cursor = edited_cursor(ScheduleSpec("*/5 * * * *", "UTC"), ticker.cursor, at("2026-06-03T12:20:10Z"))
    due = ticker.tick(at("2026-06-03T12:20:40Z"))
    assert due is not None
    assert due.scheduled_for == at("2026-06-03T12:20Z")
    assert ticker.tick(at("2026-06-03T12:20:41Z")) is None


def test_br_034_seconds_late_still_fires() -> None:
    """No grace time: however late, the latest due occurrence is ticked, with its lateness (5.4)."""
    ticker = created("10 23 * * *", "UTC", "2026-06-03T12:00Z")
    due = ticker.tick(at("2026-06-03T23:10:30Z"))
    assert due is not None
    assert (due.scheduled_for, due.lateness_seconds) == (at("2026-06-03T23:10Z"), 30.0)


def test_br_035_there_is_no_grace_time_to_exceed() -> None:
    """5.4 decides: a late slot runs; what is passed over is counted on the tick, which is the record."""
    ticker = created("0 * * * *", "UTC", "2026-06-03T12:30Z")
    due = ticker.tick(at("2026-06-03T13:00:01.2Z"))
    assert due is not None
    assert due.lateness_seconds == 1.2
    late = ticker.tick(at("2026-06-03T17:59Z"))
    assert late is not None
    assert (late.scheduled_for, late.skipped, late.lateness_seconds) == (at("2026-06-03T17:00Z"), 3, 59 * 60.0)


def test_br_037_creation_is_the_first_cursor_and_a_restart_keeps_it() -> None:
    """First cursor: time of creation (5.3)."""
    ticker = created("0 0 * * *", "UTC", "2026-06-03T23:55Z")
    ticker.every_minute(at("2026-06-03T23:55Z"), at("2026-06-04T00:30Z"))
    assert list(ticker.ticks) == [("2026-06-04T00:00", at("2026-06-04T00:00Z"))]
    down = created("0 * * * *", "UTC", "2026-06-03T13:30Z")
    down.every_minute(at("2026-06-03T13:31Z"), at("2026-06-03T13:59Z"))
    returned = Ticker(down.spec, Cursor.from_json(down.cursor.to_json()))
    returned.every_minute(at("2026-06-03T14:01Z"), at("2026-06-03T14:30Z"))
    assert list(returned.ticks) == [("2026-06-03T14:00", at("2026-06-03T14:00Z"))]


def test_br_038_computing_again_finds_the_same_slots() -> None:
    """Nothing is written ahead (5.4); slots computed before and after the change are equal."""
    spec = ScheduleSpec("30 1 * * *", "Europe/London")

    def slots(start: datetime, count: int) -> list[datetime]:
        found: list[datetime] = []
        while len(found) < count:
            due = next_after(spec.cron, spec.timezone, found[-1] if found else start)
            assert due is not None
            found.append(due)
        return found

    ahead = slots(at("2026-10-20T00:00Z"), 7)
    again = slots(at("2026-10-25T01:00Z"), 2)
    assert not [due for due in again if due.date() == at("2026-10-25T00:00Z").date()]
    assert set(ahead) & set(again) == {at("2026-10-26T01:30Z")}
    ticker = Ticker(spec, first_cursor(spec, at("2026-10-20T00:00Z")))
    ticker.every_minute(at("2026-10-24T20:00Z"), at("2026-10-25T04:00Z"))
    assert [slot for slot, _ in ticker.ticks] == ["2026-10-24T01:30", "2026-10-25T01:30"]


def test_br_040_hundreds_of_missed_starts_are_no_dead_end() -> None:
    """on_resume decides (5.3): from now on, or one tick for the latest; missed ones are counted."""
    paused, resumed = at("2026-06-03T12:00Z"), at("2026-06-03T15:00:30Z")
    plain = ScheduleSpec("* * * * *", "UTC")
    ticker = Ticker(plain, resumed_cursor(plain, first_cursor(plain, paused), resumed))
    assert ticker.tick(resumed) is None
    due = ticker.tick(resumed + 30 * SECOND)
    assert due is not None
    assert (due.scheduled_for, due.skipped) == (at("2026-06-03T15:01Z"), 0)
    latest = ScheduleSpec("* * * * *", "UTC", on_resume="run_latest")
    kept = Ticker(latest, resumed_cursor(latest, first_cursor(latest, paused), resumed))
    missed = kept.tick(resumed)
    assert missed is not None
    assert (missed.scheduled_for, missed.skipped) == (at("2026-06-03T15:00Z"), 179)
    assert kept.tick(resumed) is None


def test_br_041_a_slow_pass_leaves_nothing_out() -> None:
    """Due is decided from the stored cursor, however late (5.4). Batches are the store's tests."""
    tickers = [created("0 0 * * *", "UTC", "2026-06-03T12:00Z") for _ in range(1000)]
    begin = at("2026-06-04T00:00Z")
    for ticker in tickers[:400]:
        ticker.tick(begin + 20 * SECOND)
    for late in (timedelta(seconds=80), timedelta(seconds=150)):
        for ticker in tickers:
            ticker.tick(begin + late)
    assert [list(ticker.ticks) for ticker in tickers] == [[("2026-06-04T00:00", begin)]] * 1000
    lateness = [next(iter(ticker.ticks.values())).lateness_seconds for ticker in tickers]
    assert lateness == [20.0] * 400 + [80.0] * 600
