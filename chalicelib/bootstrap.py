"""Wires the pieces of one installation: the only place, beside ``local``, that names concrete cloud wrappers."""

from __future__ import annotations

from dataclasses import dataclass

from .access.service import AccessService
from .catalog.service import CatalogService
from .cloud.aws import Aws
from .database import Database
from .dispatch.service import DispatchService
from .kernel.clock import Clock, SystemClock
from .kernel.ids import IdSource, RandomBits
from .locations.service import LocationService
from .runs.service import RunService
from .scheduler.service import SchedulerService
from .schedules.service import ScheduleService
from .settings import Settings


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that the entry points call."""

    settings: Settings
    clock: Clock
    ids: IdSource
    database: Database
    aws: Aws
    access: AccessService
    locations: LocationService
    catalog: CatalogService
    schedules: ScheduleService
    runs: RunService
    dispatch: DispatchService
    scheduler: SchedulerService

    def close(self) -> None:
        """Close the database's connections."""
        self.database.close()


def build_services(settings: Settings, *, clock: Clock | None = None, random: RandomBits | None = None) -> Services:
    """Wire one installation; nothing is connected before it is used."""
    clock = clock or SystemClock()
    ids = IdSource(clock, random)
    database = Database(settings.database_url, connections=settings.database_connections)
    aws = Aws(settings)
    access = AccessService(database, ids, random)
    schedules = ScheduleService(database, ids)
    runs = RunService(database, ids, aws.leases, aws.objects, access)
    dispatch = DispatchService(database, ids, aws.queues, runs)
    return Services(
        settings=settings,
        clock=clock,
        ids=ids,
        database=database,
        aws=aws,
        access=access,
        locations=LocationService(database),
        catalog=CatalogService(database, aws.objects, schedules, settings),
        schedules=schedules,
        runs=runs,
        dispatch=dispatch,
        scheduler=SchedulerService(database, schedules, runs, dispatch, settings.pool_limits()),
    )
