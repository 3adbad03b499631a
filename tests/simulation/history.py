"""A history: the steps of one seed. Steps are drawn before anything runs, so that some can be left out."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.simulation.board import Fault, What, When

STEPS = 90
_FAULTY, _TWICE_FAULTY = 0.3, 0.06
# A pass touches the outside this often and more; a request hardly more than thrice.
_FURTHEST_OPERATION = {"pass": 30, "publish": 5, "work": 5, "recovery": 60, "recover": 60}
_FURTHEST_USUALLY = 3
_PAUSES = (0.0, 1.0, 8.0, 45.0, 70.0, 400.0)
_WAITS = (0.0, 0.0, 0.2, 1.0, 4.0, 15.0, 40.0, 75.0)


@dataclass(frozen=True, slots=True)
class Step:
    """After ``wait_seconds``, a thing of this kind happens; ``chance`` decides all that is open about it."""

    kind: str
    wait_seconds: float
    chance: int
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        struck = "".join(f" {f.what}@{f.operation}{f.when[0]}" for f in self.faults)
        return f"+{self.wait_seconds:g}s {self.kind} {self.chance:x}{struck}"


def draw_steps(chance: random.Random, weights: Mapping[str, int], count: int = STEPS) -> list[Step]:
    """``count`` steps whose kinds come as often as their weights say."""
    kinds = chance.choices(list(weights), list(weights.values()), k=count)
    return [Step(kind, chance.choice(_WAITS), chance.getrandbits(48), draw_faults(chance, kind)) for kind in kinds]


def draw_faults(chance: random.Random, kind: str) -> tuple[Fault, ...]:
    """Mostly none."""
    drawn = chance.random()
    if drawn >= _FAULTY:
        return ()
    return tuple(
        _draw_fault(chance, _FURTHEST_OPERATION.get(kind, _FURTHEST_USUALLY))
        for _ in range(2 if drawn < _TWICE_FAULTY else 1)
    )


def _draw_fault(chance: random.Random, furthest: int) -> Fault:
    what: Sequence[What] = ("crash", "error", "error", "pause")
    when: Sequence[When] = ("before", "after")
    return Fault(chance.randrange(furthest), chance.choice(when), chance.choice(what), chance.choice(_PAUSES))
