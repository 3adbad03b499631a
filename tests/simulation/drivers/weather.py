"""What goes wrong for everybody: outages, a store or a table that is down, a clock that is stepped."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import ClassVar

from tests.simulation.drivers.base import Act, Driver
from tests.simulation.drivers.passes import MINUTE, PassDriver
from tests.simulation.drivers.people import PeopleDriver
from tests.simulation.history import Step
from tests.simulation.world import World

_DOWN_SECONDS = 15.0
_CLOCK_ERROR_MAX = 5.0
_DAY_SECONDS = 86_400.0
_BEFORE_DAYS_SECONDS = 12 * 3_600.0


class WeatherDriver(Driver):
    """Trouble by chance."""

    WEIGHTS: ClassVar[Mapping[str, int]] = {
        "outage": 1,
        "store_down": 1,
        "table_down": 1,
        "clock_step": 2,
        "leap_back": 1,
        "days": 1,
    }

    def __init__(self, world: World, passes: PassDriver, people: PeopleDriver) -> None:
        super().__init__(world)
        self._passes = passes
        self._people = people

    def actions(self) -> Mapping[str, Act]:
        return {
            "outage": self._outage,
            "store_down": self._store_down,
            "table_down": self._table_down,
            "clock_step": self._clock_step,
            "leap_back": self._leap_back,
            "days": self._days,
        }

    def _outage(self, step: Step, chance: random.Random) -> None:
        """No tick for a while, from minutes to over a change of clocks."""
        seconds = chance.choice((300.0, 1_800.0, 3_600.0, 3 * 3_600.0, 7_200.0 * chance.random()))
        self.world.trace.add("outage", f"{seconds:.0f}")
        self._passes.stopped = True
        self.world.clock.advance(seconds)
        self._passes.on_time()
        self._passes.stopped = False

    def _days(self, step: Step, chance: random.Random) -> None:
        """Everything stands still for so long that retention removes what it may; once, for the calendar is finite."""
        if self.world.clock.elapsed_seconds() < _BEFORE_DAYS_SECONDS:
            self.world.trace.add("days")
            self.world.clock.advance(self.world.scenario.kept_days * _DAY_SECONDS + chance.choice((60.0, 3_600.0)))

    def _store_down(self, step: Step, chance: random.Random) -> None:
        self.world.weather.down_until = self.world.clock.elapsed_seconds() + _DOWN_SECONDS

    def _table_down(self, step: Step, chance: random.Random) -> None:
        self.world.leases.down_until = self.world.hints.down_until = self.world.clock.elapsed_seconds() + _DOWN_SECONDS

    def _clock_step(self, step: Step, chance: random.Random) -> None:
        error = chance.uniform(-_CLOCK_ERROR_MAX, _CLOCK_ERROR_MAX)
        self.world.weather.clock_error = round(error, 3)
        self.world.trace.add("clock_step", self.world.weather.clock_error)

    def _leap_back(self, step: Step, chance: random.Random) -> None:
        """The store's clock goes back over a full minute that was ticked, and projects are published anew."""
        clock = self.world.clock
        self.world.weather.clock_error = 0.0
        clock.advance(MINUTE - clock.elapsed_seconds() % MINUTE + 0.5)
        self._passes.on_time()
        self.world.weather.clock_error = -_CLOCK_ERROR_MAX
        self.world.trace.add("clock_step", self.world.weather.clock_error)
        for target in self.world.scenario.targets:
            self._people.replace_and_bring_back(target, chance)
