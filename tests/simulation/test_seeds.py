"""A handful of seeds; ``make simulate`` runs as many as you like."""

from __future__ import annotations

import pytest

from tests.postgres import PostgresServer
from tests.simulation.concurrent import simulate_at_once
from tests.simulation.report import describe
from tests.simulation.simulation import simulate
from tests.simulation.store import SimulationStore

pytestmark = pytest.mark.usefixtures("postgres")


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_seed_finds_nothing(simulations: SimulationStore, seed: int) -> None:
    outcome = simulate(seed, simulations)
    assert outcome.violation is None, describe(outcome, simulations)


def test_equal_seeds_give_equal_bytes(postgres: PostgresServer) -> None:
    outcomes = []
    for _ in range(2):
        store = SimulationStore(postgres)
        outcomes.append(simulate(7, store))
        store.close()
    first, second = outcomes
    assert first.trace == second.trace
    assert first.digest == second.digest


def test_a_used_database_gives_the_bytes_of_a_fresh_one(simulations: SimulationStore) -> None:
    fresh = simulate(3, simulations).digest
    assert simulate(4, simulations).digest != fresh
    assert simulate(3, simulations).digest == fresh


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_history_at_once_on_several_connections_finds_nothing(simulations: SimulationStore, seed: int) -> None:
    assert simulate_at_once(seed, simulations) is None
