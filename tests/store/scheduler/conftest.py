"""A world whose time passes only when told."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.doubles import HandClock
from tests.store.world import World, watch_the_door

SIX = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(SIX)


@pytest.fixture
def world(application_url: str, owner_url: str, clock: HandClock) -> Iterator[World]:
    watch_the_door(owner_url)
    made = World(application_url, clock=clock)
    made.target()
    made.open_boot()
    yield made
    made.close()
