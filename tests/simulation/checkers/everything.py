"""All checkers of a world."""

from __future__ import annotations

from tests.simulation.checkers.alerts import AlertChecker
from tests.simulation.checkers.attention import AttentionChecker, LookAheadChecker
from tests.simulation.checkers.backfills import BackfillChecker
from tests.simulation.checkers.base import Checker
from tests.simulation.checkers.blockers import BlockerChecker
from tests.simulation.checkers.coverage import CoverageChecker
from tests.simulation.checkers.epochs import EpochChecker
from tests.simulation.checkers.losses import LossChecker
from tests.simulation.checkers.pools import PoolChecker
from tests.simulation.checkers.retention import RetentionChecker
from tests.simulation.checkers.retries import RetryChecker
from tests.simulation.checkers.states import StateChecker
from tests.simulation.checkers.writers import WriterChecker
from tests.simulation.world import World


def all_checkers(world: World) -> list[Checker]:
    """C8 and C13 have none here: ``Answers`` compares when an answer comes, ``ThrottleDriver`` knows its queue."""
    coverage, blockers, losses = CoverageChecker(world), BlockerChecker(world), LossChecker(world)
    others = [
        kind(world)
        for kind in (
            EpochChecker, WriterChecker, PoolChecker, StateChecker, RetryChecker, LookAheadChecker, AlertChecker,
            RetentionChecker, BackfillChecker,
        )
    ]  # fmt: skip
    return [coverage, losses, *others, blockers, AttentionChecker(world, coverage, blockers, losses)]
