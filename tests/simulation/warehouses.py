"""The warehouses: who writes what at this simulated moment. This is what write claims are to protect."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from tests.simulation.clock import WorldClock
from tests.simulation.violations import Violation

# The store's clock may be wrong by a few seconds at either end of a settle time.
CLOCK_MARGIN_SECONDS = 15.0


@dataclass(slots=True)
class Writer:
    """A child process, or what its warehouse still does for it; ``until`` is set once the process is gone."""

    claim_id: str
    boot_id: str
    run_id: str
    warehouse: str
    relations: frozenset[str]
    until: float | None = None
    process_ends: float | None = None


class Warehouses:
    """All writers of the simulation."""

    def __init__(self, clock: WorldClock) -> None:
        self._clock = clock
        self._writers: list[Writer] = []
        self._lock = threading.RLock()

    def begin(self, writer: Writer) -> None:
        """A child starts to write."""
        with self._lock:
            self._begin(writer)

    def _begin(self, writer: Writer) -> None:
        for other in self.writing():
            shared = writer.relations & other.relations if writer.warehouse == other.warehouse else frozenset()
            if shared:
                raise Violation(
                    "C3",
                    f"{writer.run_id} on {writer.boot_id} begins to write {sorted(shared)} of {writer.warehouse}, which "
                    f"{other.run_id} on {other.boot_id} writes{' still' if other.until is not None else ''}",
                )
        self._writers.append(writer)

    def bound(self, writer: Writer, ends: float, settle_seconds: float) -> None:
        """Whatever becomes of this writer's worker, its process is gone at that second."""
        writer.process_ends, writer.until = ends, ends + _lasting(settle_seconds)

    def end(self, claim_id: str, boot_id: str) -> None:
        """The child ended by itself; its statements are done."""
        with self._lock:
            self._writers = [w for w in self._writers if (w.claim_id, w.boot_id) != (claim_id, boot_id)]

    def kill(self, claim_id: str, boot_id: str, settle_seconds: float) -> None:
        """The child is gone at once; what it asked of the warehouse goes on for up to the settle time."""
        with self._lock:
            for writer in self._writers:
                if (writer.claim_id, writer.boot_id) == (claim_id, boot_id):
                    ends = self._clock.elapsed_seconds()
                    writer.process_ends = ends if writer.process_ends is None else min(ends, writer.process_ends)
                    writer.until = writer.process_ends + _lasting(settle_seconds)

    def stop(self, run_id: str) -> None:
        """Somebody made sure that nothing of this run works any more."""
        with self._lock:
            self._writers = [w for w in self._writers if w.run_id != run_id]

    def process_lives(self, claim_id: str) -> bool:
        """Whether a child of this claim still runs."""
        now = self._clock.elapsed_seconds()
        return any(w.claim_id == claim_id and (w.process_ends is None or now < w.process_ends) for w in self.writing())

    def writing(self) -> list[Writer]:
        """Who writes now."""
        now = self._clock.elapsed_seconds()
        self._writers = [w for w in self._writers if w.until is None or w.until > now]
        return self._writers


def _lasting(settle_seconds: float) -> float:
    return max(0.0, settle_seconds - CLOCK_MARGIN_SECONDS)
