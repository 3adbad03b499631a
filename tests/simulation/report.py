"""What is printed of a failing seed: seed, revision, what was found, and a short history that still shows it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.simulation.history import Step
from tests.simulation.mutations import NO_MUTATION, Mutation
from tests.simulation.shrink import ATTEMPTS, shrink
from tests.simulation.simulation import Outcome, simulate
from tests.simulation.store import SimulationStore

_LAST_LINES = 12


def revision() -> str:
    """The commit of this tree, with a mark when files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    answer = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


def describe(
    outcome: Outcome, store: SimulationStore, mutation: Mutation = NO_MUTATION, attempts: int = ATTEMPTS
) -> str:
    """The report of a seed that failed."""
    short = shortened(outcome, store, mutation, attempts)
    lines = [
        f"seed {outcome.seed} at {revision()}: {outcome.violation}",
        f"again: make simulate SEEDS=1 FIRST={outcome.seed}",
        f"{len(short.steps)} of {len(outcome.steps)} steps still show it:",
        *(f"  {step}" for step in short.steps),
        "the last that happened in these:",
        *(f"  {line}" for line in short.trace[-_LAST_LINES:]),
    ]
    return "\n".join(lines)


def shortened(outcome: Outcome, store: SimulationStore, mutation: Mutation, attempts: int) -> Outcome:
    """The same finding by fewer steps."""
    checker = outcome.violation.checker if outcome.violation else ""

    def still_fails(steps: Sequence[Step]) -> bool:
        again = simulate(outcome.seed, store, mutation, steps)
        return again.violation is not None and again.violation.checker == checker

    steps = shrink(outcome.steps, still_fails, attempts)
    return simulate(outcome.seed, store, mutation, steps)
