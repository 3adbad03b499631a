"""All drivers of a world, in the order in which they act in a calm round."""

from __future__ import annotations

from tests.simulation.drivers.base import Driver
from tests.simulation.drivers.hints import HintDriver
from tests.simulation.drivers.passes import PassDriver
from tests.simulation.drivers.people import PeopleDriver
from tests.simulation.drivers.weather import WeatherDriver
from tests.simulation.drivers.workers import WorkerDriver
from tests.simulation.world import World


def all_drivers(world: World) -> list[Driver]:
    """The drivers of every domain."""
    people, passes = PeopleDriver(world), PassDriver(world)
    weather, hints = WeatherDriver(world, passes, people), HintDriver(world, passes, people)
    return [people, passes, WorkerDriver(world), weather, hints]


def all_weights() -> dict[str, int]:
    """How often each kind of step comes."""
    kinds = (PeopleDriver, PassDriver, WorkerDriver, WeatherDriver, HintDriver)
    return {name: weight for kind in kinds for name, weight in kind.WEIGHTS.items()}
