"""The state machine of a backfill as one table; it feeds the services' guards, the docs and the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

BackfillState = Literal["active", "paused", "cancelling", "completed", "cancelled"]

STATES: tuple[BackfillState, ...] = get_args(BackfillState)

# Which state may be left for which; nothing leaves a state that is not named here.
LEAVES_TO: Mapping[BackfillState, tuple[BackfillState, ...]] = {
    "active": ("paused", "cancelling", "completed"),
    "paused": ("active", "cancelling", "completed"),
    "cancelling": ("cancelled",),
}


def may_become(state: BackfillState, wanted: BackfillState) -> bool:
    """Whether a backfill in ``state`` may go to ``wanted``; staying is no change and always allowed."""
    return state == wanted or wanted in LEAVES_TO.get(state, ())
