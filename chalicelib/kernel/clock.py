"""The only module that reads a clock.

Due decisions use the database clock (``database.Transaction.now``); what is here serves waiting,
lease observation and display. Tests and the simulator pass their own object of the same shape.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

_SUSPEND_AWARE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """A wall clock, a stopwatch that counts suspension, and a way to wait."""

    def now(self) -> datetime:
        """The wall time as an aware UTC datetime."""

    def elapsed_seconds(self) -> float:
        """Seconds since an arbitrary start; never steps back and counts a suspended machine."""

    def sleep(self, seconds: float) -> None:
        """Wait for that many seconds."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed_seconds(self) -> float:
        return time.clock_gettime(_SUSPEND_AWARE)

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


def instant_text(instant: datetime) -> str:
    """``YYYY-MM-DDTHH:MM:SS.ffffffZ``: always UTC, always six digits (scheduler.md 1.4).

    Texts with and without a fraction do not sort as instants, hence one form everywhere.
    """
    if instant.tzinfo is None:
        raise ValueError("an instant must carry its zone")
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_instant(text: str) -> datetime:
    """Read an ISO 8601 instant with a zone; a text without one raises ``ValueError``."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text!r} names no zone; write it as 2026-01-31T06:15:00Z")
    return in_utc(instant)


def in_utc(instant: datetime) -> datetime:
    """The same instant in UTC; one that UTC's calendar does not hold raises ``ValueError``."""
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{instant.isoformat()} lies beyond the calendar") from None
