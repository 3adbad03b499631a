"""10,000 schedules due in one second: how long until all are ticked, and all their runs claimed or told why not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from chalicelib.database import Write
from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.ids import IdSource
from chalicelib.kernel.limits import LEASE_SECONDS
from chalicelib.runs.claiming import ClaimBatch
from chalicelib.runs.claiming import Keyset as ClaimKeyset
from chalicelib.runs.service import RunService
from chalicelib.scheduler.leadership import Leadership
from chalicelib.scheduler.retention import Retention
from chalicelib.scheduler.service import SchedulerService
from chalicelib.schedules.evaluation import Evaluated
from chalicelib.schedules.evaluation import Keyset as TickKeyset
from chalicelib.schedules.model import ScheduleSpec
from chalicelib.schedules.service import ScheduleService
from chalicelib.settings import Settings

from .document import Document, Figure, rounded, say
from .filling import FilledJob, fill
from .installation import Installation, installation
from .planning import compare
from .store import Store, durable_store

SCHEDULES = 10_000
SLOTS = 6_000
WRITERS_SHARING = 10
_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Europe/London", "Asia/Kolkata")
_SHAPES = (
    "{0.minute} {0.hour} * * *",
    "{0.minute} * * * *",
    "{0.minute} {0.hour} * * {1}",
    "{0.minute} {0.hour} {0.day} * *",
)


def measure() -> Document:
    """Fill, make one visit as the due message does, look at what it left; then plan beside the peers."""
    figures = _measure_visit()
    planning, peers, ratios = compare()
    return Document("ticks", figures | {f"planning_{name}": value for name, value in planning.items()}, peers, ratios)


def _measure_visit() -> dict[str, Figure]:
    due = datetime.now(UTC).replace(second=0, microsecond=0)
    with durable_store() as store, installation(store, container_slots=SLOTS) as installed:
        say(f"filling {SCHEDULES:,} schedules due at {due:%H:%M:%S} UTC")
        with store.direct() as connection:
            fill(connection, list(due_jobs(due, SCHEDULES)))
        say("visiting")
        phases = _visit(installed)
        return _figures(store, installed, phases)


def due_jobs(due: datetime, count: int) -> Iterator[FilledJob]:
    """Jobs whose only owed occurrence is ``due``, in several zones and shapes.

    Each writes two relations of its own; every tenth writes one that its neighbour writes too.
    """
    for place in range(count):
        zone, shape = _ZONES[place % len(_ZONES)], _SHAPES[place // len(_ZONES) % len(_SHAPES)]
        local = due.astimezone(ZoneInfo(zone))
        spec = ScheduleSpec(shape.format(local, local.isoweekday()), zone)
        name = f"job{place:06}"
        relations = [f"{name}_staged", f"{name}_mart"]
        if place % WRITERS_SHARING in (0, 1):
            relations.append(f"shared{place // WRITERS_SHARING:06}")
        yield FilledJob(name, spec, relations, due - timedelta(seconds=1))


@dataclass(slots=True)
class Phases:
    """When the last schedule was ticked and the last run decided, in seconds since the visit began."""

    began: float
    ticked: float = 0.0
    decided: float = 0.0
    ended: float = 0.0
    processor: float = 0.0


class _TimedSchedules(ScheduleService):
    """Notes when each batch of ticks is committed."""

    phases: Phases

    def evaluate_batch(self, write: Write, shard: int, pass_now: datetime, after: TickKeyset) -> Evaluated:
        batch = super().evaluate_batch(write, shard, pass_now, after)
        if batch.ticked:
            self.phases.ticked = time.perf_counter() - self.phases.began
        return batch


class _TimedRuns(RunService):
    """Notes when each batch of decisions is committed."""

    phases: Phases

    def claim_batch(self, write: Write, shard: int, after: ClaimKeyset) -> ClaimBatch:
        batch = super().claim_batch(write, shard, after)
        if batch.claimed or batch.blocked:
            self.phases.decided = time.perf_counter() - self.phases.began
        return batch


def _visit(installed: Installation) -> Phases:
    phases = Phases(0.0)
    scheduler = _timed_scheduler(installed, phases)
    installed.forget_calls()
    phases.began, processor = time.perf_counter(), time.process_time()
    scheduler.visit(0, "due")
    phases.ended = time.perf_counter() - phases.began
    phases.processor = time.process_time() - processor
    return phases


def _timed_scheduler(installed: Installation, phases: Phases) -> SchedulerService:
    database, domains, clock = installed.database, installed.domains, SystemClock()
    ids = IdSource(clock)
    schedules = _TimedSchedules(database, ids, domains.lowering)
    runs = _TimedRuns(
        database, ids, domains.lowering, leases=installed.leases, objects=installed.objects, tokens=domains.access
    )
    schedules.phases = runs.phases = phases
    return SchedulerService(
        database,
        Leadership(database, installed.leases, ids, clock, LEASE_SECONDS),
        domains.hints,
        queues=installed.queues,
        clock=clock,
        domains=(schedules, runs, domains.dispatch, domains.backfills),
        retention=Retention(clock, Settings().keeping()),
        recovery=domains.recovery,
        pool_limits={"worker:container": SLOTS},
    )


def _figures(store: Store, installed: Installation, phases: Phases) -> dict[str, Figure]:
    with store.direct() as connection:
        found = connection.execute(_FOUND).fetchone() or {}
    if (found["ticks"], found["claimed"] + found["blocked"]) != (SCHEDULES, SCHEDULES):
        raise RuntimeError(f"the visit left work undone: {found}")
    return {
        "schedules": SCHEDULES,
        "all_ticked_seconds": rounded(phases.ticked),
        "all_decided_seconds": rounded(phases.decided),
        "visit_seconds": rounded(phases.ended),
        "visit_cpu_seconds": rounded(phases.processor),
        "statements_per_1000": rounded(installed.statements * 1_000 / SCHEDULES),
        "queue_sends": installed.queues.sends.total(),
        "dynamodb_calls": sum(installed.table_calls.values()),
        **found,
        "postgres": store.described(),
    }


_FOUND = b"""
SELECT (SELECT count(*) FROM ticks) AS ticks,
       (SELECT count(*) FROM runs WHERE status = 'claimed') AS claimed,
       (SELECT count(DISTINCT run_id) FROM run_blockers) AS blocked,
       (SELECT count(DISTINCT run_id) FROM run_blockers WHERE code = 'write_claim') AS blocked_by_a_writer
"""
