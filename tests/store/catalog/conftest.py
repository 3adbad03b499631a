"""A catalog over a real store, with schedules kept by the real service and objects in memory."""

from __future__ import annotations

import pytest

from chalicelib.catalog import CatalogService
from chalicelib.database import Database
from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.ids import IdSource
from chalicelib.locations import LocationService, TargetSettings
from chalicelib.schedules.service import ScheduleService
from chalicelib.settings import Settings
from tests.doubles import MemoryObjects, lowering_over

SETTINGS = Settings.model_validate({"stage": "test"})


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def locations(database: Database) -> LocationService:
    """The locations, with the target ``cafe/prod``."""
    service = LocationService(database, lowering_over(database))
    service.add("cafe")
    service.set_target("cafe", "prod", TargetSettings())
    return service


@pytest.fixture
def schedules(database: Database) -> ScheduleService:
    return ScheduleService(database, IdSource(SystemClock()), lowering_over(database))


@pytest.fixture
def catalog(
    database: Database, objects: MemoryObjects, schedules: ScheduleService, locations: LocationService
) -> CatalogService:
    return CatalogService(database, lowering_over(database), objects, schedules, SETTINGS)
