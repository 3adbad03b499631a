"""When a run is retried, and when never (10.3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.authoring.policies import Retry, RetryOn
from chalicelib.runs.retrying import CLASS_OF_REASON, retry_at
from chalicelib.runs.states import EndReason

NOW = datetime(2026, 12, 1, 6, tzinfo=UTC)
ALL: tuple[RetryOn, ...] = ("launch_failed", "lost", "failed")
CLASSES = {
    "launch_failed": {"accept_timeout", "start_timeout", "lost_before_start", "queue_dead"},
    "lost": {"lost", "interrupted", "killed"},
    "failed": {"tool_failed", "pre_execution", "timed_out"},
}
NEVER = {"drift", "inputs_invalid", "usage", "empty_selection", "resolved"}


def test_every_reason_is_in_one_class_or_never_retried() -> None:
    assert {r for r in get_args(EndReason) if r not in CLASS_OF_REASON} == NEVER
    for name, reasons in CLASSES.items():
        assert {reason for reason, kind in CLASS_OF_REASON.items() if kind == name} == reasons


@pytest.mark.parametrize("on", ALL)
@pytest.mark.parametrize("reason", get_args(EndReason))
def test_a_policy_retries_its_own_classes_only(on: RetryOn, reason: EndReason) -> None:
    assert (retry_at(Retry(on=(on,)), reason, 0, NOW) is not None) == (reason in CLASSES[on])


def test_without_a_policy_nothing_is_retried() -> None:
    assert retry_at(None, "lost", 0, NOW) is None


def test_the_wait_grows_by_the_factor_up_to_its_limit_and_ends_after_the_last() -> None:
    policy = Retry(max=5, backoff=60, factor=3, max_backoff=1_000, on=ALL)
    waits = [retry_at(policy, "lost", number, NOW) for number in range(6)]
    assert waits == [NOW + timedelta(seconds=s) for s in (60, 180, 540, 1_000, 1_000)] + [None]


def test_no_wait_means_at_once() -> None:
    assert retry_at(Retry(backoff=0), "queue_dead", 1, NOW) == NOW


@given(
    st.builds(
        Retry,
        max=st.integers(1, 20),
        backoff=st.integers(0, 86_400),
        factor=st.floats(1, 10),
        max_backoff=st.integers(0, 86_400),
        on=st.just(ALL),
    ),
    st.integers(0, 30),
)
def test_a_wait_is_never_longer_than_its_limit(policy: Retry, number: int) -> None:
    at = retry_at(policy, "tool_failed", number, NOW)
    assert (at is None) == (number >= policy.max)
    assert at is None or NOW <= at <= NOW + timedelta(seconds=policy.max_backoff)
