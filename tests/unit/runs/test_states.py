"""The state table: terminal states never change, and every reason belongs to a terminal state (S35)."""

from __future__ import annotations

from typing import get_args

from chalicelib.runs.states import ACTIVE, STATE_OF_REASON, TERMINAL, TRANSITIONS, EndReason, RunState, sources_of


def test_every_state_has_a_row() -> None:
    assert set(TRANSITIONS) == set(get_args(RunState))


def test_terminal_states_lead_nowhere() -> None:
    assert {"succeeded", "failed", "cancelled", "launch_failed"} == TERMINAL
    assert all(not TRANSITIONS[state] for state in TERMINAL)


def test_active_states_are_neither_waiting_nor_over() -> None:
    assert ACTIVE.isdisjoint(TERMINAL)
    assert "queued" not in ACTIVE


def test_every_reason_ends_in_a_terminal_state_but_an_operator_s_decision_which_may_choose() -> None:
    assert set(STATE_OF_REASON) == set(get_args(EndReason)) - {"resolved"}
    assert set(STATE_OF_REASON.values()) <= TERMINAL


def test_sources_are_the_reverse_of_transitions() -> None:
    assert sources_of("cancelled") == ["claimed", "queued", "running"]
    assert sources_of("queued") == []
    assert sources_of("launch_failed") == ["claimed"]
