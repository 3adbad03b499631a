"""Virtual time: one world clock, and the clocks of machines that may be wrong against it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta


class WorldClock:
    """True simulated time. It moves only when the simulation moves it."""

    def __init__(self, start: datetime) -> None:
        self.start = start
        self._elapsed = timedelta()
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return self.start + self._elapsed

    def elapsed_seconds(self) -> float:
        return self._elapsed.total_seconds()

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Whole microseconds, so that sums of steps are exact."""
        with self._lock:
            self._elapsed += timedelta(microseconds=round(seconds * 1_000_000))


class MachineClock:
    """``kernel.clock.Clock`` of one machine: its wall clock is off, its stopwatch is not (F5)."""

    def __init__(self, world: WorldClock, wait: Callable[[float], None], offset_seconds: float = 0.0) -> None:
        self._world = world
        self._wait = wait
        self._offset = timedelta(seconds=offset_seconds)

    def now(self) -> datetime:
        return self._world.now() + self._offset

    def elapsed_seconds(self) -> float:
        return self._world.elapsed_seconds()

    def sleep(self, seconds: float) -> None:
        self._wait(max(0.0, seconds))
