"""Writers and raisers of the hint in every order, with the wake-up lost (F15): then only the hint tells of the work."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar

from tests.simulation.board import Fault
from tests.simulation.drivers.base import Act, Driver
from tests.simulation.drivers.passes import PassDriver
from tests.simulation.drivers.people import PeopleDriver
from tests.simulation.history import Step
from tests.simulation.world import World

_STILL_SECONDS = 270.0
_RESTING = 0.6
# A request reads the sequence, lowers the hint, and then writes.
_WRITE_OF_REQUEST = 3
# What a pass does between its claims and its release, at the most.
_LAST_OPERATIONS = range(12, 28)


class HintDriver(Driver):
    """Races around the hint, each followed by minutes in which nobody but the minute rule acts."""

    WEIGHTS: ClassVar[Mapping[str, int]] = {"hint_race": 4, "still": 1}

    def __init__(self, world: World, passes: PassDriver, people: PeopleDriver, beside: Sequence[Driver]) -> None:
        super().__init__(world)
        self._passes = passes
        self._people = people
        self._beside = beside

    def actions(self) -> Mapping[str, Act]:
        return {"hint_race": self._race, "still": self._still}

    def _race(self, step: Step, chance: random.Random) -> None:
        if chance.random() < _RESTING:
            self._rest(chance)
        queues = self.world.queues
        losing, queues.losing = queues.losing, 1.0
        if chance.random() < 0.5:
            operation = chance.choice(_LAST_OPERATIONS)
            when = "before" if chance.random() < 0.5 else "after"
            self._passes.visit_all(chance, (Fault(operation, when, "pause"),))  # type: ignore[arg-type]  # one of the two
            self._people.request(chance, ())
        else:
            self._people.request(chance, (Fault(_WRITE_OF_REQUEST, "before", "pause"),))
            self._passes.visit_all(chance, ())
        self.world.board.resume_due()
        queues.losing = losing
        self._still(step, chance)

    def _rest(self, chance: random.Random) -> None:
        """All that is at work ends: a shard with an active run is looked at twice a minute, whatever its hint says."""
        for _ in range(2):
            for driver in self._beside:
                driver.settle()
            self._passes.visit_all(chance, ())

    def healthy(self) -> AbstractContextManager[None]:
        """No pass is struck, and no message lost, while this is open."""
        return self._passes.without_faults()

    def pass_time(self, seconds: float) -> None:
        """Time in which nobody acts but schedulers, recovery and the beats of workers."""
        self.world.pass_time(seconds, self._on_time)

    def _still(self, step: Step, chance: random.Random) -> None:
        """No fault, no person, no worker for some minutes: what is left lying now is left by the scheduler."""
        self.world.board.calm()
        with self.healthy():
            self.pass_time(_STILL_SECONDS)
        if all(process.name.startswith("recovery") for process in self.world.board.paused):
            self.world.after_quiet()

    def _on_time(self) -> None:
        """Schedulers and recovery go on, and workers beat."""
        for driver in (self._passes, *self._beside):
            driver.on_time()
