"""Every checker can fail: one mutation for each; ``make mutations`` shows them all."""

from __future__ import annotations

import logging

import pytest

from tests.simulation.hunt import hunt
from tests.simulation.interleaving import interleave
from tests.simulation.mutations import NO_MUTATION, all_mutations
from tests.simulation.report import describe
from tests.simulation.simulation import simulate
from tests.simulation.store import SimulationStore

SEEDS = range(1, 41)
QUICK = {
    "C1": "the margin of the lease is ignored",
    "C2": "disabled schedules are ticked",
    "C3": "one writer per relation is not enforced",
    "C4": "slots are not given back",
    "C5": "what was cancelled is retried",
    "C6": "blockers are not stored",
    "C8": "answers to reports are not stored",
    "C11": "the next due time is not in the hint",
    "C12": "a due second may get several messages",
    "C13": "worker kinds have no pool",
    "C14": "a mark counts as a proof",
    "C15": "an alert stays open",
    "C16": "what began long ago is deleted",
    "C17": "an unclaimed item stays",
}


@pytest.fixture(autouse=True)
def quiet_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def test_every_checker_has_a_mutation() -> None:
    assert {mutation.checker for mutation in all_mutations()} == set(QUICK)


@pytest.mark.parametrize("checker", QUICK)
def test_a_checker_finds_its_mutation(simulations: SimulationStore, checker: str) -> None:
    mutation = next(found for found in all_mutations() if found.name == QUICK[checker])
    found = hunt(mutation, simulations, SEEDS)
    assert found.seed is not None, f"{mutation.name}: {found.others}"
    assert found.text.startswith(f"{checker}: ")


def test_a_cancel_that_locks_its_run_makes_a_last_report_wait(simulations: SimulationStore) -> None:
    assert interleave(simulations, NO_MUTATION) is None


def test_a_cancel_without_the_lock_of_its_run_is_found(simulations: SimulationStore) -> None:
    mutation = next(found for found in all_mutations() if found.interleaved)
    assert hunt(mutation, simulations, ()).text.startswith("C5: ")


def test_a_failing_seed_says_seed_and_revision_and_becomes_short(simulations: SimulationStore) -> None:
    mutation = next(found for found in all_mutations() if found.name == "disabled schedules are ticked")
    seed = hunt(mutation, simulations, SEEDS).seed
    assert seed is not None
    outcome = simulate(seed, simulations, mutation)
    report = describe(outcome, simulations, mutation, attempts=25)
    assert report.startswith(f"seed {seed} at ")
    assert f"make simulate SEEDS=1 FIRST={seed}" in report
    kept = next(int(line.split()[0]) for line in report.splitlines() if " steps still show it" in line)
    assert kept < len(outcome.steps) / 2
