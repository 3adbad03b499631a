"""How long something may take, on a stopwatch that counts suspension."""

from __future__ import annotations

import email.utils
from datetime import datetime

from ..kernel.clock import Clock


class Deadline:
    """Counts down from the moment it is made."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._ends = clock.elapsed_seconds() + seconds

    def left_seconds(self) -> float:
        """Seconds that are left, 0 when it is over."""
        return max(0.0, self._ends - self._clock.elapsed_seconds())


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """``Retry-After`` in seconds, from a number or an HTTP date; ``None`` when it is absent or unreadable."""
    if value is None:
        return None
    if value.strip().isascii() and value.strip().isdigit():
        return float(value)
    try:
        instant = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (instant - now).total_seconds()) if instant.tzinfo else None
