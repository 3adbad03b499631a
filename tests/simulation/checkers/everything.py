"""All checkers of a world."""

from __future__ import annotations

from tests.simulation.checkers.attention import AttentionChecker, LookAheadChecker
from tests.simulation.checkers.base import Checker
from tests.simulation.checkers.blockers import BlockerChecker
from tests.simulation.checkers.coverage import CoverageChecker
from tests.simulation.checkers.epochs import EpochChecker
from tests.simulation.checkers.pools import PoolChecker
from tests.simulation.checkers.states import StateChecker
from tests.simulation.checkers.writers import WriterChecker
from tests.simulation.world import World


def all_checkers(world: World) -> list[Checker]:
    """C8 has none here: ``Answers`` compares when an answer comes."""
    coverage, blockers = CoverageChecker(world), BlockerChecker(world)
    others = [kind(world) for kind in (EpochChecker, WriterChecker, PoolChecker, StateChecker, LookAheadChecker)]
    return [coverage, *others, blockers, AttentionChecker(world, coverage, blockers)]
