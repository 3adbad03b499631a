"""One simulation: a scenario, a history, and the calm after it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chalicelib.kernel.canonical import sha256_text
from tests.simulation.checkers.base import Checker
from tests.simulation.checkers.everything import all_checkers
from tests.simulation.database import Commit
from tests.simulation.drivers.base import Act, Driver
from tests.simulation.drivers.everyone import all_drivers, all_weights
from tests.simulation.history import Step, draw_steps
from tests.simulation.mutations import NO_MUTATION, Mutation
from tests.simulation.scenario import Scenario, draw_scenario
from tests.simulation.store import SimulationStore
from tests.simulation.violations import Violation
from tests.simulation.world import World

# Some quiet minutes in which schedules go on; then rounds that grow longer, so that deadlines of a quarter of an hour and
# settle times pass in few of them.
_QUIET_ROUNDS = (60.0,) * 10
_QUIET_ROUNDS_LEAST = 4
_LAST_QUIET_SECONDS = 240.0
# Where little is due, an idle minute is one read: an hour of them costs little, and the hint must wake the shard by itself.
_SPARSE_QUIET_SECONDS = 3_900.0
_LAST_ROUNDS = (2.0,) * 6 + (15.0,) * 30 + (60.0,) * 10 + (300.0,) * 30


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a simulation ended; ``violation`` is ``None`` when nothing was found."""

    seed: int
    steps: Sequence[Step]
    violation: Violation | None
    trace: Sequence[str] = field(repr=False)
    digest: str


def draw(seed: int, focus: Mapping[str, int] | None = None) -> tuple[Scenario, list[Step]]:
    """The scenario and the history of a seed; with ``focus`` some kinds of steps come more often."""
    chance = random.Random(seed)
    scenario = draw_scenario(chance)
    return scenario, draw_steps(chance, {**all_weights(), **(focus or {})})


def simulate(
    seed: int, store: SimulationStore, mutation: Mutation = NO_MUTATION, steps: Sequence[Step] | None = None
) -> Outcome:
    """Run the history of a seed, or a part of it, in an empty store."""
    scenario, drawn = draw(seed, mutation.focus)
    played = drawn if steps is None else steps
    store.reset()
    mutation.apply(store)
    world = World(scenario, store, mutation)
    violation: Violation | None = None
    try:
        _Play(world).play(played)
    except Violation as found:
        violation = found
        world.board.abandon()
    world.trace.add("end", violation or "nothing found")
    digest = sha256_text(world.trace.digest() + sha256_text("\n".join(store.dump())))
    if mutation.alters_schema:
        store.renew()
    return Outcome(seed, played, violation, world.trace.lines, digest)


class _Play:
    """Drivers and checkers around a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._checkers: list[Checker] = [c for c in all_checkers(world) if c.name not in world.mutation.blind]
        world.observers.append(self._after_commit)
        world.after_pass = self._after_pass
        world.after_quiet = self._after_quiet
        world.set_up()
        self._drivers: list[Driver] = all_drivers(world)
        for driver in self._drivers:
            driver.begin()
        self._actions: dict[str, Act] = {
            name: act for driver in self._drivers for name, act in driver.actions().items()
        }

    def play(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._pass_time(step.wait_seconds)
            self._world.trace.add("step", step)
            self._actions[step.kind](step, random.Random(step.chance))
            for checker in self._checkers:
                checker.after_step()
        self._calm()

    def _pass_time(self, seconds: float) -> None:
        self._world.pass_time(seconds, self._on_time)

    def _on_time(self) -> None:
        for driver in self._drivers:
            driver.on_time()

    def _calm(self) -> None:
        world = self._world
        world.trace.add("calm")
        world.calm()
        for checker in self._checkers:
            checker.begin_calm()
        for number, seconds in enumerate(_QUIET_ROUNDS):
            if number >= _QUIET_ROUNDS_LEAST and not self._active():
                break
            self._round(seconds)
        # nobody but the scheduler acts now: what became free in the last round must be taken by it
        self._pass_time(_SPARSE_QUIET_SECONDS if world.scenario.sparse else _LAST_QUIET_SECONDS)
        self._after_quiet()
        for driver in self._drivers:
            driver.close()
        for seconds in _LAST_ROUNDS:
            self._round(seconds)
            if all(checker.settled() for checker in self._checkers):
                break
        for checker in self._checkers:
            checker.at_end()

    def _active(self) -> bool:
        """While a run is at work a pass comes twice a minute: an hour of that would show nothing that minutes do not."""
        return any(row["status"] in {"claimed", "running"} for row in self._world.view["runs"])

    def _round(self, seconds: float) -> None:
        self._pass_time(seconds)
        for driver in self._drivers:
            driver.settle()

    def _after_commit(self, commit: Commit) -> None:
        for checker in self._checkers:
            checker.after_commit(commit)

    def _after_pass(self, shard: int) -> None:
        for checker in self._checkers:
            checker.after_pass(shard)

    def _after_quiet(self) -> None:
        for checker in self._checkers:
            checker.after_quiet()
