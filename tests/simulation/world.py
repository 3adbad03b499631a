"""One simulated installation: the real services over one store, and the simulated outside around them."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import ClassVar, TypeVar

from chalicelib.bootstrap import Domains, Stores, build_domains
from chalicelib.database import Database
from chalicelib.kernel.errors import TidemillError, Unavailable
from chalicelib.kernel.ids import IdSource
from chalicelib.locations.model import TargetSettings
from chalicelib.projects.bundle import JobDefinition
from chalicelib.settings import Settings
from tests.doubles import MemoryObjects
from tests.simulation.answers import Answers
from tests.simulation.board import Board, CurrentChance, Fault, Process
from tests.simulation.clock import MachineClock, WorldClock
from tests.simulation.database import Commit, SimulatedDatabase, StoreWeather
from tests.simulation.leases import SimulatedTable
from tests.simulation.mutations import Mutation
from tests.simulation.queues import SimulatedQueues
from tests.simulation.scenario import Scenario, Target
from tests.simulation.store import SimulationStore
from tests.simulation.tasks import SimulatedTasks
from tests.simulation.trace import Trace
from tests.simulation.view import StoreView
from tests.simulation.violations import Violation
from tests.simulation.warehouses import Warehouses

Answer = TypeVar("Answer")
_LEAST_SECONDS = 0.000_001
# The queues that start an invocation as soon as a message can be received.
_READ_AT_ONCE = ("tick", "recovery", "task-events")


@dataclass(frozen=True, slots=True)
class Machine:
    """One process environment: its own wall clock, and the services in it."""

    clock: MachineClock
    domains: Domains


def _no_reply() -> Exception:
    return Unavailable("no reply came")


class World:
    """Everything of one simulation. ``machines[0]`` serves the API, the others schedule."""

    def __init__(self, scenario: Scenario, store: SimulationStore, mutation: Mutation) -> None:
        self.scenario = scenario
        self.store = store
        self.mutation = mutation
        self.clock = WorldClock(scenario.start)
        self.trace = Trace(self.clock)
        self.weather = StoreWeather()
        self.objects = MemoryObjects()
        self.answers = Answers()
        self.warehouses = Warehouses(self.clock)
        self.observers: list[Callable[[Commit], None]] = []
        # each makes sure that no worker of one driver works for a run any more
        self.stop_work: list[Callable[[str, random.Random], None]] = []
        self.after_pass: Callable[[int], None] = lambda _: None
        self.after_quiet: Callable[[], None] = lambda: None
        self.settings = Settings(
            lambda_concurrency=scenario.lambda_limit,
            container_slots=scenario.container_limit,
            lease_seconds=mutation.lease_seconds,
            keep_ticks_days=scenario.kept_days,
            keep_heartbeats_days=1,
            keep_alerts_days=scenario.kept_days,
            keep_tokens_days=1,
            keep_backfills_days=scenario.kept_days,
            keep_runs_days=scenario.kept_days,
            keep_snapshots_days=1,
        )
        self._versions = {v.snapshot_id: v for versions in scenario.versions.values() for v in versions}
        self.build_outside()
        self.machines = [self.machine(offset) for offset in scenario.machine_errors]

    # whether processes may run beside each other
    overlaps: ClassVar[bool] = False

    def build_outside(self) -> None:
        """The board, and what is around the product."""
        self.board = Board(self.clock, self.trace)
        self.view = StoreView(self.store.connection)
        self.observers.append(lambda commit: self.view.forget(commit.tables))
        self.queues = SimulatedQueues(self.board)
        self.leases = SimulatedTable(self.board, self.mutation.updates)
        self.hints = SimulatedTable(self.board, self.mutation.updates)
        self.tasks = SimulatedTasks(self.board, self.queues)

    def database(self) -> Database:
        """The store as one process environment reaches it."""
        return SimulatedDatabase(
            self.store.connection, self.board, self.weather, self.observers, self.mutation.rewrites
        )

    @property
    def api(self) -> Domains:
        """The services of the machine that serves the API."""
        return self.machines[0].domains

    def machine(self, clock_error: float) -> Machine:
        """The services of a new process environment."""
        clock = MachineClock(self.clock, self.board.sleep, clock_error)
        chance = CurrentChance(self.board)
        stores = Stores(self.database(), self.leases, self.hints, self.queues, self.objects, self.tasks)
        return Machine(clock, build_domains(self.settings, stores, clock, IdSource(clock, chance), chance))

    def store_now(self) -> datetime:
        """What the store's clock shows."""
        return self.clock.now() + timedelta(seconds=self.weather.clock_error)

    # --- running things

    def run(
        self,
        name: str,
        chance: random.Random,
        faults: Sequence[Fault],
        call: Callable[[], None],
        *,
        may_wait: bool = False,
        grain_seconds: float = 0.0,
    ) -> Process:
        """Run a call of the product as a process of its own."""
        process = Process(name, chance, tuple(faults), may_wait=may_wait, grain_seconds=grain_seconds)
        self.board.run(process, call)
        return process

    def request(
        self,
        name: str,
        chance: random.Random,
        faults: Sequence[Fault],
        call: Callable[[], Answer],
        *,
        answered: Callable[[Answer], None] = lambda _: None,
        refused: Callable[[str], None] = lambda _: None,
        expected: Collection[str] = (),
        may_wait: bool = False,
        grain_seconds: float = 0.0,
    ) -> Process:
        """A client's request: it gets the answer, a refusal, or nothing (a fault); the client may repeat it."""

        def serve() -> None:
            process = self.board.current
            try:
                with self.board.operation("request", _no_reply):
                    answer = call()
            except TidemillError as error:
                self.trace.add(name, "refused", error.code)
                self.check_refusal(name, error, process, expected)
                if error.code != Unavailable.code:
                    refused(error.code)
                return
            self.trace.add(name, "answered")
            answered(answer)

        return self.run(name, chance, faults, serve, may_wait=may_wait, grain_seconds=grain_seconds)

    def check_refusal(self, name: str, error: TidemillError, process: Process, expected: Collection[str]) -> None:
        """A refusal that nothing explains is a finding."""
        unavailable = error.code == Unavailable.code and (not process.clean or self.troubled)
        if error.code not in expected and not unavailable:
            raise Violation("errors", f"{name}: {error.code}: {error}") from error

    @property
    def troubled(self) -> bool:
        """Whether a dependency is, or was a moment ago, down for everybody."""
        return (
            self.clock.elapsed_seconds()
            < max(self.weather.down_until, self.leases.down_until, self.hints.down_until) + 1.0
        )

    def pass_time(self, seconds: float, moved: Callable[[], None]) -> None:
        """Let time pass, stopping at every moment at which something goes on by itself; ``moved`` is told of each."""
        until = self.clock.elapsed_seconds() + seconds
        stop = -1.0
        while stop < until:
            self.board.resume_due()  # whoever became due while others acted, or it would hide those due after it
            now = self.clock.elapsed_seconds()
            stops = (self.board.next_resume_at(), *map(self.queues.next_visible_at, _READ_AT_ONCE), self._next_minute())
            stop = min([until, *(at for at in stops if at is not None and at > now)])
            self.clock.advance(max(_LEAST_SECONDS, stop - now))
            self.board.resume_due()
            moved()

    def _next_minute(self) -> float:
        return (self.clock.elapsed_seconds() // 60.0 + 1.0) * 60.0

    def calm(self) -> None:
        """No fault from here on; what was held up goes on."""
        self.queues.calm = True
        self.weather.down_until = self.leases.down_until = self.hints.down_until = 0.0
        self.board.calm()

    # --- the first moment

    def set_up(self) -> None:
        """Locations, targets, pools, and the first version of each project."""
        self.store.set_pool("default", self.scenario.pool_limit)
        for number, target in enumerate(self.scenario.targets):
            self.run("setup", random.Random(number), (), partial(self._set_up, target))
        if self.scenario.shards > 1:
            self.run("setup", random.Random(-1), (), lambda: self._reshard(self.scenario.shards))

    def _reshard(self, count: int) -> None:
        self.api.scheduler.reshard(count)

    def _set_up(self, target: Target) -> None:
        self.api.locations.add(target.location)
        settings = TargetSettings(
            warehouse=target.warehouse, settle_seconds=target.settle_seconds, single_writer=target.single_writer
        )
        self.api.locations.set_target(target.location, target.target, settings)

    def pool_limits(self) -> dict[str, int]:
        """What each pool allows: those of worker kinds by the settings, the others as people set them."""
        limits = {row["pool"]: row["slot_limit"] for row in self.view["pools"]}
        return limits | {"worker:lambda": self.scenario.lambda_limit, "worker:container": self.scenario.container_limit}

    def target(self, location: str, target: str) -> Target:
        """The facts of a target."""
        return next(t for t in self.scenario.targets if (t.location, t.target) == (location, target))

    def definition(self, snapshot_id: str, job: str) -> JobDefinition:
        """A job as a version of its project defines it, from the scenario and not from the store."""
        return self._versions[snapshot_id].index.jobs[job]
