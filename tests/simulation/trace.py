"""What happened, one line an event; equal seeds give equal bytes."""

from __future__ import annotations

import hashlib

from tests.simulation.clock import WorldClock


class Trace:
    """Lines with the simulated time. It never holds wall time, addresses or anything of this machine."""

    def __init__(self, clock: WorldClock) -> None:
        self._clock = clock
        self.lines: list[str] = []

    def add(self, *words: object) -> None:
        """Append one line."""
        self.lines.append(f"{self._clock.elapsed_seconds():.6f} " + " ".join(map(str, words)))

    def digest(self) -> str:
        """SHA-256 of all lines."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()
