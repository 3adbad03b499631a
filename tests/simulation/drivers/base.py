"""What every driver offers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import ClassVar

from tests.simulation.history import Step
from tests.simulation.world import World

Act = Callable[[Step, random.Random], None]


class Driver:
    """Acts for one domain.

    ``WEIGHTS`` says how often its steps come, ``actions`` what they do. ``on_time`` sees every moment to which the clock moves. ``settle`` does without faults what
    this domain's people and machines would do sooner or later; it is called each round after the last step. ``close`` comes
    before the last rounds.
    """

    WEIGHTS: ClassVar[Mapping[str, int]] = {}

    def __init__(self, world: World) -> None:
        self.world = world

    def actions(self) -> Mapping[str, Act]:
        """What each kind of step does."""
        return {}

    def begin(self) -> None:
        """What stands before the first step, without faults."""

    def on_time(self) -> None:
        """The clock has moved."""

    def settle(self) -> None:
        """One calm round."""

    def close(self) -> None:
        """Nothing new begins from here on."""

    def calm_chance(self, name: str) -> random.Random:
        """Chance for a calm step: its own at each moment."""
        return random.Random(f"{name} {self.world.clock.elapsed_seconds()}")
