"""Two transactions in one exact order on real connections: what no history shows in which they take turns.

A cancel stops right after it has read its run, until a last report of the same run has ended or waits for a lock. So a
missing row lock is found every time, and where it is not missing the report is seen to wait.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import psycopg

from chalicelib.database import Database, Query, Transaction
from chalicelib.database.connection import Connection, Row
from chalicelib.runs.model import CancelRequest, Outcome, Report
from tests.simulation.checkers.states import StateChecker
from tests.simulation.concurrent import ConcurrentWorld, PooledDatabase
from tests.simulation.drivers.boots import Boot, Task
from tests.simulation.drivers.passes import PassDriver
from tests.simulation.drivers.people import PeopleDriver
from tests.simulation.drivers.workers import WorkerDriver
from tests.simulation.mutations import Mutation
from tests.simulation.simulation import draw
from tests.simulation.store import SimulationStore
from tests.simulation.violations import Violation

_HELD_AFTER = "lock_run"
_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.02
_TRIES = 30
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class _HeldTransaction(Transaction):
    """Says which statement it has run, to whoever holds it up."""

    def __init__(
        self, plain: Transaction, connection: Connection, rewrites: Mapping[str, str], ran: Callable[[str], None]
    ) -> None:
        super().__init__(connection, plain.now, lambda: None)
        self._rewrites = rewrites
        self._ran = ran

    def _run(self, query: Query, parameters: Mapping[str, object]) -> psycopg.Cursor[Row]:
        altered = self._rewrites.get(query.name)
        cursor = super()._run(query if altered is None else Query(query.name, altered, query.parameters), parameters)
        self._ran(query.name)
        return cursor


class _HeldDatabase(PooledDatabase):
    rewrites: Mapping[str, str]
    ran: Callable[[str], None]

    def _transaction(self, connection: Any) -> Transaction:
        return _HeldTransaction(super()._transaction(connection), connection, self.rewrites, self.ran)


class InterleavedWorld(ConcurrentWorld):
    """A calm world of two threads. ``hold`` marks the one that stops; ``released`` lets it go on."""

    def build_outside(self) -> None:
        super().build_outside()
        self.queues.calm = True
        self._held = threading.local()
        self.reached, self.released = threading.Event(), threading.Event()

    def database(self) -> Database:
        held = _HeldDatabase(self.store.address.application_url, self.board, self.weather, self.store_now)
        held.rewrites, held.ran = self.mutation.rewrites, self._ran
        self._databases.append(held)
        return held

    def hold(self) -> None:
        """This thread stops after the statement."""
        self._held.here = True

    def _ran(self, name: str) -> None:
        if name == _HELD_AFTER and getattr(self._held, "here", False):
            self._held.here = False
            self.reached.set()
            self.released.wait(_PATIENCE_SECONDS)


def interleave(store: SimulationStore, mutation: Mutation) -> Violation | None:
    """A cancel and a last report of one run: what the states checker says afterwards."""
    store.reset()
    world = InterleavedWorld(draw(1)[0], store, mutation)
    try:
        _race(world, *_running(world))
        StateChecker(world).at_end()
    except Violation as found:
        return found
    finally:
        world.close()
    return None


def _running(world: InterleavedWorld) -> tuple[Boot, Task]:
    """A run that a worker has started."""
    world.set_up()
    people, passes, workers = PeopleDriver(world), PassDriver(world), WorkerDriver(world)
    people.begin()
    for number in range(_TRIES):
        chance = random.Random(number)
        people.request(chance, ())
        passes.visit_all(chance, ())
        for kind in ("container", "lambda"):
            boot = workers.fleet.start(kind, chance, ())
            workers.receive(boot)
            for _ in range(3):
                if boot.tasks and boot.tasks[0].state != "running":
                    workers.go_on(boot, boot.tasks[0], chance, ())
            if boot.tasks and boot.tasks[0].state == "running":
                return boot, boot.tasks[0]
    raise RuntimeError("no run was started")


def _race(world: InterleavedWorld, boot: Boot, task: Task) -> None:
    world.warehouses.end(task.claim_id, boot.boot_id)
    report = Report(report_key=f"rep_{task.claim_id}_end", kind="terminal", outcome=Outcome(state="succeeded"))
    with ThreadPoolExecutor(2) as threads:
        cancelled = threads.submit(_cancel, world, task)
        world.reached.wait(_PATIENCE_SECONDS)
        reported = threads.submit(world.api.runs.report, task.run_id, task.claim_id, report)
        with psycopg.connect(world.store.address.superuser_url, autocommit=True) as looking:
            for _ in range(int(_PATIENCE_SECONDS / _LOOK_SECONDS)):
                waiting = looking.execute(_WAITING).fetchone()
                if wait([reported], timeout=_LOOK_SECONDS).done or (waiting is not None and waiting[0]):
                    break
        world.released.set()
    reported.result()
    cancelled.result()


def _cancel(world: InterleavedWorld, task: Task) -> None:
    world.hold()
    answer = world.api.runs.cancel(task.run_id, CancelRequest(cancel_id="can_0123456789abcdef"), "ada")
    world.answers.record("cancel", answer.cancel_id, answer.model_dump(mode="json"))
