"""A world of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.world import World


@pytest.fixture
def world(application_url: str) -> Iterator[World]:
    made = World(application_url)
    made.target()
    made.open_boot()
    yield made
    made.close()
