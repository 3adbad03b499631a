"""A world of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.world import World, watch_the_door


@pytest.fixture
def world(application_url: str, owner_url: str) -> Iterator[World]:
    watch_the_door(owner_url)
    made = World(application_url)
    made.target()
    made.open_boot()
    yield made
    made.close()
