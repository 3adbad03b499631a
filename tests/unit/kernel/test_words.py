"""Ids, instants, canonical text, cursors."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.kernel.canonical import canonical_json, digest_of
from chalicelib.kernel.clock import SystemClock, instant_text, parse_instant
from chalicelib.kernel.errors import IdInvalid, InvalidRequest
from chalicelib.kernel.ids import IdSource, check_client_id
from chalicelib.kernel.paging import check_limit, decode_cursor, encode_cursor


class StillClock(SystemClock):
    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at


NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def test_a_seed_and_a_clock_give_the_same_ids_again() -> None:
    first, second = (IdSource(StillClock(NOON), random.Random(7)) for _ in range(2))
    assert [first.mint("run") for _ in range(3)] == [second.mint("run") for _ in range(3)]


def test_ids_sort_by_time_and_are_uuid_seven() -> None:
    clock = StillClock(NOON)
    ids = IdSource(clock)
    early = ids.mint("run")
    clock.at += timedelta(milliseconds=1)
    late = ids.mint("run")
    assert early < late
    assert early.startswith("run_")
    assert len(early) == 36
    assert early[4 + 12] == "7"
    assert early[4 + 16] in "89ab"
    assert check_client_id("run_id", early) == early


@pytest.mark.parametrize(
    "value", ["short", "x" * 65, "with space in it 16", "päckchen-mit-umlaut", "a/b/c/d/e/f/g/h/i", ""]
)
def test_a_malformed_client_id_is_refused_by_name(value: str) -> None:
    with pytest.raises(IdInvalid, match=r"^run_id: "):
        check_client_id("run_id", value)


def test_an_instant_has_one_text() -> None:
    berlin = timezone(timedelta(hours=1))
    assert instant_text(datetime(2026, 12, 1, 13, 0, tzinfo=berlin)) == "2026-12-01T12:00:00.000000Z"
    assert parse_instant("2026-12-01T13:00:00+01:00") == NOON
    with pytest.raises(ValueError, match="zone"):
        parse_instant("2026-12-01T13:00:00")
    with pytest.raises(ValueError, match="zone"):
        instant_text(datetime(2026, 12, 1))


@given(
    st.datetimes(min_value=datetime(1990, 1, 1), max_value=datetime(2100, 1, 1)),
    st.datetimes(min_value=datetime(1990, 1, 1), max_value=datetime(2100, 1, 1)),
)
def test_instant_texts_sort_as_instants(one: datetime, other: datetime) -> None:
    one, other = one.replace(tzinfo=UTC), other.replace(tzinfo=UTC)
    assert (instant_text(one) < instant_text(other)) == (one < other)


def test_canonical_text_ignores_the_order_of_keys() -> None:
    assert canonical_json({"b": 1, "a": ["ä"]}) == '{"a":["ä"],"b":1}'
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    with pytest.raises(ValueError):
        canonical_json(float("nan"))


def test_a_cursor_returns_its_key_under_its_own_filter_only() -> None:
    cursor = encode_cursor({"job": "orders"}, ["2026", "run_1"])
    assert decode_cursor({"job": "orders"}, cursor, 2) == ["2026", "run_1"]
    for filters, text, parts in [
        ({"job": "other"}, cursor, 2),
        ({"job": "orders"}, cursor, 1),
        ({}, "§§", 2),
        ({}, "bm9wZQ", 1),
    ]:
        with pytest.raises(InvalidRequest, match="cursor"):
            decode_cursor(filters, text, parts)


@pytest.mark.parametrize("limit", [0, -1, 201])
def test_a_page_size_outside_its_bounds_is_refused(limit: int) -> None:
    with pytest.raises(InvalidRequest, match="limit"):
        check_limit(limit)
    assert check_limit(None) == 50
