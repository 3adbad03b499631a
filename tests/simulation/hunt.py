"""Look for the seed that shows a mutation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.simulation.interleaving import interleave
from tests.simulation.mutations import Mutation
from tests.simulation.simulation import simulate
from tests.simulation.store import SimulationStore


@dataclass(frozen=True, slots=True)
class Hunt:
    """The first seed whose checker found the mutation, or ``None``; and who else found something on the way."""

    mutation: Mutation
    seed: int | None
    text: str
    others: tuple[str, ...]


def hunt(mutation: Mutation, store: SimulationStore, seeds: Iterable[int]) -> Hunt:
    """Run seeds until the checker that the mutation names finds something."""
    if mutation.interleaved:
        found = interleave(store, mutation)
        return Hunt(mutation, 0 if found else None, str(found), ())
    others: list[str] = []
    for seed in seeds:
        outcome = simulate(seed, store, mutation)
        if outcome.violation is None:
            continue
        if outcome.violation.checker == mutation.checker:
            return Hunt(mutation, seed, str(outcome.violation), tuple(others))
        others.append(f"{outcome.violation.checker}@{seed}")
    return Hunt(mutation, None, "not found", tuple(others))
