"""Wires the pieces of one installation: the only place, beside ``local``, that names concrete cloud wrappers.

Imports stand inside the functions: a tick that the hints let sleep loads neither a database driver nor a domain.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from .cloud.aws import Aws
from .kernel.canonical import canonical_json
from .kernel.clock import Clock, SystemClock
from .kernel.ids import IdSource, RandomBits
from .leases.hints import Hints
from .settings import Settings

if TYPE_CHECKING:
    from .access.service import AccessService
    from .alerts.service import AlertService
    from .backfills.service import BackfillService
    from .catalog.service import CatalogService
    from .cloud.ports import LeaseTable, ObjectStore, QueueService, TaskService
    from .database import Database
    from .dispatch.service import DispatchService
    from .leases.lowering import HintLowering
    from .locations.service import LocationService
    from .runs.pools import PoolService
    from .runs.service import RunService
    from .scheduler.recovery import RecoveryService
    from .scheduler.service import SchedulerService
    from .schedules.service import ScheduleService

LOG = logging.getLogger("tidemill.wake")


@dataclass(frozen=True, slots=True)
class Stores:
    """What lies outside this process, by the ports that the services know."""

    database: Database
    leases: LeaseTable
    hints: LeaseTable
    queues: QueueService
    objects: ObjectStore
    tasks: TaskService | None = None


@dataclass(frozen=True, slots=True)
class Domains:
    """The services over one set of stores."""

    access: AccessService
    locations: LocationService
    catalog: CatalogService
    schedules: ScheduleService
    runs: RunService
    dispatch: DispatchService
    backfills: BackfillService
    pools: PoolService
    alerts: AlertService
    scheduler: SchedulerService
    recovery: RecoveryService
    hints: Hints
    lowering: HintLowering


@dataclass(frozen=True, slots=True)
class Services(Domains):
    """Everything that the entry points call: the services of an installation on AWS, and what they stand on."""

    settings: Settings
    clock: Clock
    ids: IdSource
    database: Database
    aws: Aws

    def close(self) -> None:
        """Close the database's connections."""
        self.database.close()


def build_hints(settings: Settings) -> Hints:
    """The hints alone: all that an idle tick needs."""
    return Hints(Aws(settings).hints)


def build_services(settings: Settings, *, clock: Clock | None = None, random: RandomBits | None = None) -> Services:
    """Wire one installation; nothing is connected before it is used."""
    from .database import Database

    clock = clock or SystemClock()
    ids = IdSource(clock, random)
    database = Database(settings.database_url, connections=settings.database_connections)
    aws = Aws(settings)
    stores = Stores(database, aws.leases, aws.hints, aws.queues, aws.objects, aws.tasks)
    domains = build_domains(settings, stores, clock, ids, random)
    wired = {field.name: getattr(domains, field.name) for field in fields(domains)}
    return Services(settings=settings, clock=clock, ids=ids, database=database, aws=aws, **wired)


def build_domains(
    settings: Settings, stores: Stores, clock: Clock, ids: IdSource, random: RandomBits | None = None
) -> Domains:
    """The services over any stores: those of AWS, or those of a simulation."""
    from .access.service import AccessService
    from .alerts.service import AlertService
    from .backfills.service import BackfillService
    from .catalog.service import CatalogService
    from .dispatch.service import DispatchService
    from .leases.lowering import HintLowering
    from .locations.service import LocationService
    from .runs.losing import Losses
    from .runs.pools import PoolService
    from .runs.service import RunService
    from .scheduler.leadership import Leadership
    from .scheduler.recovery import RecoveryService
    from .scheduler.retention import Retention
    from .scheduler.service import SchedulerService
    from .schedules.service import ScheduleService

    database, hints = stores.database, Hints(stores.hints)
    lowering = HintLowering(database, hints, waking(stores.queues), clock)
    access = AccessService(database, ids, random)
    schedules = ScheduleService(database, ids, lowering)
    runs = RunService(
        database, ids, lowering, leases=stores.leases, objects=stores.objects, tokens=access, tasks=stores.tasks
    )
    dispatch = DispatchService(database, ids, lowering, stores.queues, runs)
    leadership = Leadership(database, stores.leases, ids, clock, settings.lease_seconds)
    recovery = RecoveryService(
        database,
        leadership,
        stores.leases,
        clock=clock,
        losses=Losses(database, ids, lowering),
        domains=(runs, dispatch),
        wake=waking(stores.queues),
        lease_seconds=settings.lease_seconds,
    )
    backfills = BackfillService(database, ids, lowering, runs)
    pools = settings.pool_limits()
    return Domains(
        access=access,
        locations=LocationService(database, lowering),
        catalog=CatalogService(database, lowering, stores.objects, schedules, settings),
        schedules=schedules,
        runs=runs,
        dispatch=dispatch,
        backfills=backfills,
        pools=PoolService(database, lowering),
        alerts=AlertService(database),
        scheduler=SchedulerService(
            database,
            leadership,
            hints,
            queues=stores.queues,
            clock=clock,
            domains=(schedules, runs, dispatch, backfills),
            retention=Retention(clock, settings.keeping()),
            recovery=recovery,
            pool_limits=pools,
        ),
        recovery=recovery,
        hints=hints,
        lowering=lowering,
    )


def waking(queues: QueueService) -> Callable[[Sequence[int]], None]:
    """Sends a wake-up to each shard; one that cannot be sent is logged, and the minute tick makes up for it."""

    def wake(shards: Sequence[int]) -> None:
        for shard in shards:
            try:
                queues.send("tick", canonical_json({"v": 1, "shard": shard, "kind": "wake"}))
            except Exception as error:  # noqa: BLE001  # the change is committed; only its speed is lost
                LOG.warning("shard %s was not woken (%s)", shard, type(error).__name__)

    return wake
