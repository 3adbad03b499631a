from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.kernel.canonical import digest_of
from chalicelib.schedules.model import Cursor, Due, ScheduleSpec
from tests.unit.cron.cron_oracle import at

SPEC = ScheduleSpec("0 6 * * *", "Europe/Berlin")


def test_the_spec_hash_covers_exactly_the_four() -> None:
    document = {"cron": "0 6 * * *", "timezone": "Europe/Berlin", "dst": "cron", "on_resume": "none"}
    assert SPEC.spec_hash == digest_of(document)
    others = [
        replace(SPEC, cron="0 7 * * *"),
        replace(SPEC, timezone="Europe/Paris"),
        replace(SPEC, on_resume="run_latest"),
    ]
    assert len({SPEC.spec_hash, *(other.spec_hash for other in others)}) == 4
    assert replace(SPEC).spec_hash == SPEC.spec_hash


def test_a_cursor_survives_the_state_row() -> None:
    cursor = Cursor(at("2026-03-29T01:00:00.000001Z"), "2026-03-29T03:00", SPEC.spec_hash)
    assert cursor.to_json()["scheduled_for"] == "2026-03-29T01:00:00.000001Z"
    assert Cursor.from_json(cursor.to_json()) == cursor


def test_a_damaged_state_row_is_no_cursor() -> None:
    whole = Cursor(at("2026-03-29T01:00Z"), "2026-03-29T03:00", "x").to_json()
    with pytest.raises(KeyError, match="local_slot"):
        Cursor.from_json({key: value for key, value in whole.items() if key != "local_slot"})
    with pytest.raises(ValueError, match="names no zone"):
        Cursor.from_json({**whole, "scheduled_for": "2026-03-29T01:00:00"})


def test_the_cursor_after_a_tick_is_the_tick() -> None:
    due = Due(at("2026-03-29T04:00Z"), "2026-03-29T06:00", skipped=0, lateness_seconds=1.5)
    assert due.cursor(SPEC) == Cursor(at("2026-03-29T04:00Z"), "2026-03-29T06:00", SPEC.spec_hash)
