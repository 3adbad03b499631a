"""All drivers of a world, in the order in which they act in a calm round."""

from __future__ import annotations

from tests.simulation.drivers.backfills import BackfillDriver
from tests.simulation.drivers.base import Driver
from tests.simulation.drivers.hints import HintDriver
from tests.simulation.drivers.operators import OperatorDriver
from tests.simulation.drivers.passes import PassDriver
from tests.simulation.drivers.people import PeopleDriver
from tests.simulation.drivers.recovery import RecoveryDriver
from tests.simulation.drivers.throttle import ThrottleDriver
from tests.simulation.drivers.weather import WeatherDriver
from tests.simulation.drivers.workers import WorkerDriver
from tests.simulation.world import World

_KINDS: tuple[type[Driver], ...] = (
    PeopleDriver, PassDriver, RecoveryDriver, WorkerDriver, OperatorDriver, BackfillDriver, WeatherDriver, HintDriver,
    ThrottleDriver,
)  # fmt: skip


def all_drivers(world: World) -> list[Driver]:
    """The drivers of every domain; beats come before whoever watches them."""
    people, passes, workers = PeopleDriver(world), PassDriver(world), WorkerDriver(world)
    recovery, weather = RecoveryDriver(world, passes), WeatherDriver(world, passes, people)
    hints = HintDriver(world, passes, people, (recovery, workers))
    operators, backfills = OperatorDriver(world, people, workers.fleet), BackfillDriver(world, people)
    throttle = ThrottleDriver(world, people, workers, hints)
    return [people, passes, workers, recovery, operators, backfills, weather, hints, throttle]


def all_weights() -> dict[str, int]:
    """How often each kind of step comes."""
    return {name: weight for kind in _KINDS for name, weight in kind.WEIGHTS.items()}
