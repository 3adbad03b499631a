"""A database for the simulations of this process; see ``tests/postgres.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import PostgresServer, postgres
from tests.simulation.store import SimulationStore

__all__ = ["postgres", "simulations"]


@pytest.fixture
def simulations(postgres: PostgresServer) -> Iterator[SimulationStore]:
    """A store that simulations empty and fill, one after the other."""
    store = SimulationStore(postgres)
    yield store
    store.close()
