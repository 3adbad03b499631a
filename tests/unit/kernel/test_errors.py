"""Every error: a stable code, a message, a status or an exit code."""

from __future__ import annotations

import re
from collections import Counter

from chalicelib.kernel import errors
from chalicelib.kernel.errors import (
    EXIT_OF_CODE,
    EXIT_OF_STATUS,
    STATUS,
    ClaimTaken,
    InvalidRequest,
    OutcomeUnknown,
    TidemillError,
    all_errors,
    exit_code_of,
    status_of,
)


def test_every_class_has_its_own_code_and_a_message() -> None:
    classes = list(all_errors())
    assert all(re.fullmatch(r"[a-z_]+", kind.code) for kind in classes)
    assert all(len(kind.title()) > 10 for kind in classes)
    doubled = [code for code, count in Counter(kind.code for kind in classes).items() if count > 1]
    assert doubled == []


def test_every_code_has_a_status_or_an_exit_code_and_nothing_else_has() -> None:
    codes = {kind.code for kind in all_errors()}
    assert codes == set(STATUS) | set(EXIT_OF_CODE)
    assert set(STATUS.values()) <= set(EXIT_OF_STATUS)


def test_exit_codes_are_the_documented_ones() -> None:
    assert {exit_code_of(kind()) for kind in all_errors()} <= {1, 2, 3, 4, 5, 6, 7}
    assert exit_code_of(ClaimTaken()) == 5
    assert exit_code_of(OutcomeUnknown()) == 6


def test_a_field_is_named_in_text_and_in_data() -> None:
    error = InvalidRequest.of_field("timezone", "no such zone")
    assert str(error) == "timezone: no such zone"
    assert [(f.field, f.code, f.message) for f in error.fields] == [("timezone", "invalid_request", "no such zone")]


def test_an_error_without_detail_says_its_headline() -> None:
    assert str(ClaimTaken()) == "Another worker has accepted this claim"
    assert status_of(TidemillError()) == 500


def test_every_class_of_the_module_is_reached_by_the_walk() -> None:
    defined = {v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, TidemillError)}
    assert defined <= set(all_errors())
