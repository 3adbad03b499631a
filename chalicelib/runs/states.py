"""The state machine of a run, as one table; feeds the SQL guards, the docs and the tests (scheduler.md 7.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

RunState = Literal["queued", "claimed", "running", "succeeded", "failed", "cancelled", "launch_failed"]

TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    "queued": frozenset({"claimed", "cancelled"}),
    "claimed": frozenset({"running", "launch_failed", "cancelled"}),
    "running": frozenset({"succeeded", "failed", "cancelled"}),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
    "launch_failed": frozenset(),
}
TERMINAL = frozenset(state for state, next_states in TRANSITIONS.items() if not next_states)
ACTIVE: frozenset[RunState] = frozenset({"claimed", "running"})

EndReason = Literal[
    "tool_failed", "usage", "pre_execution", "empty_selection",
    "timed_out", "killed", "interrupted", "lost",
    "drift", "inputs_invalid",
    "accept_timeout", "start_timeout", "lost_before_start", "queue_dead",
    "resolved",
]  # fmt: skip

# Which terminal state each end reason belongs to; an operator's resolution may choose any.
STATE_OF_REASON: Mapping[EndReason, RunState] = {
    "tool_failed": "failed",
    "usage": "failed",
    "pre_execution": "failed",
    "empty_selection": "failed",
    "timed_out": "failed",
    "killed": "failed",
    "interrupted": "failed",
    "lost": "failed",
    "drift": "launch_failed",
    "inputs_invalid": "launch_failed",
    "accept_timeout": "launch_failed",
    "start_timeout": "launch_failed",
    "lost_before_start": "launch_failed",
    "queue_dead": "launch_failed",
}


def sources_of(state: RunState) -> list[RunState]:
    """The states from which ``state`` may be entered: what a guarded UPDATE names."""
    return sorted(source for source, next_states in TRANSITIONS.items() if state in next_states)
