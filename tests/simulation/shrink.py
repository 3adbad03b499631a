"""A failing history, made short: steps and faults are left out as long as the same checker still finds something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.simulation.history import Step

StillFails = Callable[[Sequence[Step]], bool]
ATTEMPTS = 250


class _Budget:
    """So many attempts and no more: a short history that comes late helps nobody."""

    def __init__(self, still_fails: StillFails, attempts: int) -> None:
        self._still_fails = still_fails
        self._left = attempts

    @property
    def spent(self) -> bool:
        return self._left <= 0

    def fails(self, steps: Sequence[Step]) -> bool:
        if self.spent:
            return False
        self._left -= 1
        return self._still_fails(steps)


def shrink(steps: Sequence[Step], still_fails: StillFails, attempts: int = ATTEMPTS) -> list[Step]:
    """The steps without what is not needed: first in halves, then in ever smaller parts, then the faults."""
    budget = _Budget(still_fails, attempts)
    kept = list(steps)
    size = max(1, len(kept) // 2)
    while not budget.spent:
        shorter = _without_parts(kept, size, budget)
        if len(shorter) == len(kept) and size == 1:
            break
        kept = shorter
        size = max(1, min(size // 2, len(kept) // 2))
    return _without_faults(kept, budget)


def _without_parts(steps: list[Step], size: int, budget: _Budget) -> list[Step]:
    kept, at = list(steps), 0
    while at < len(kept):
        shorter = kept[:at] + kept[at + size :]
        if budget.fails(shorter):
            kept = shorter
        else:
            at += size
    return kept


def _without_faults(steps: list[Step], budget: _Budget) -> list[Step]:
    kept = list(steps)
    for at, step in enumerate(kept):
        if step.faults:
            calmer = [*kept[:at], replace(step, faults=()), *kept[at + 1 :]]
            kept = calmer if budget.fails(calmer) else kept
    return kept
