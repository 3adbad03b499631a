"""A queue with a known number of slow consumers (F20): what waits for them must wait in the queue, not in a claim."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import ClassVar

from tests.simulation.drivers.base import Act, Driver
from tests.simulation.drivers.boots import Boot, Task, WorkerKind
from tests.simulation.drivers.hints import HintDriver
from tests.simulation.drivers.people import PeopleDriver
from tests.simulation.drivers.workers import WorkerDriver
from tests.simulation.history import Step
from tests.simulation.violations import Violation
from tests.simulation.world import World

_RUN_SECONDS = 240.0
_LOOK_SECONDS = 30.0
_LOOKS = 30
_REQUESTS = 10
# It takes long.
_OFTEN = 0.5
# More than a run has requests when nothing fails.
_STEPS = 12
_NEVER_TAKEN = ("accept_timeout", "queue_dead")


class ThrottleDriver(Driver):
    """C13: nothing of a throttled queue ends ``launch_failed``. For its time there are no faults and no other worker."""

    WEIGHTS: ClassVar[Mapping[str, int]] = {"throttle": 1}

    def __init__(self, world: World, people: PeopleDriver, workers: WorkerDriver, still: HintDriver) -> None:
        super().__init__(world)
        self._people = people
        self._workers = workers
        self._still = still

    def actions(self) -> Mapping[str, Act]:
        return {"throttle": self._throttle}

    def _throttle(self, step: Step, chance: random.Random) -> None:
        if self.world.overlaps or chance.random() >= _OFTEN:
            return
        kind: WorkerKind = chance.choice(("lambda", "lambda", "container"))
        self.world.board.calm()
        before = {row["run_id"] for row in self.world.view["runs"] if row["status"] != "queued"}
        with self._still.healthy():
            consumers = [self._consumer(kind, chance) for _ in range(self._limit(kind))]
            for _ in range(_REQUESTS):
                self._people.request(chance, ())
            for _ in range(_LOOKS):
                self._still.pass_time(_LOOK_SECONDS)
                for boot in consumers:
                    self._consume(boot, chance)
            self._check(kind, before)

    def _limit(self, kind: WorkerKind) -> int:
        return self.world.scenario.lambda_limit if kind == "lambda" else self.world.scenario.container_limit

    def _consumer(self, kind: WorkerKind, chance: random.Random) -> Boot:
        boot = self._workers.fleet.start(kind, chance, ())
        boot.slots = 1
        return boot

    def _consume(self, boot: Boot, chance: random.Random) -> None:
        """One run at a time, each for four minutes."""
        if not boot.tasks:
            self._workers.receive(boot)
        for task in list(boot.tasks):
            for _ in range(_STEPS):
                if task in boot.tasks and not self._began_now(task):
                    self._workers.go_on(boot, task, chance, ())

    def _began_now(self, task: Task) -> bool:
        return task.state == "running" and self.world.clock.elapsed_seconds() - task.started_at < _RUN_SECONDS

    def _check(self, kind: WorkerKind, before: set[str]) -> None:
        for row in self.world.view["runs"]:
            worker = self.world.definition(row["snapshot_id"], row["job"]).worker
            if row["run_id"] not in before and worker == kind and row["end_reason"] in _NEVER_TAKEN:
                raise Violation("C13", f"{row['run_id']} waited for {kind} and ended {row['end_reason']}")
