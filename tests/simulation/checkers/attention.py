"""C11: a shard with work is looked at in time. C12: a due second gets one look-ahead message (S10, S13)."""

from __future__ import annotations

import json
from collections import Counter

from chalicelib.kernel.limits import LEASE_MARGIN_SECONDS, LEASE_SECONDS
from tests.simulation.checkers.base import Checker
from tests.simulation.checkers.blockers import BlockerChecker
from tests.simulation.checkers.coverage import CoverageChecker
from tests.simulation.checkers.losses import LossChecker
from tests.simulation.database import Commit
from tests.simulation.world import World


class AttentionChecker(Checker):
    """After some quiet minutes nothing that is due may be left lying, whatever the hints say.

    The bound is a minute, plus lease, margin and another minute after a holder died: less than the quiet minutes are.
    """

    name = "C11"

    def __init__(self, world: World, coverage: CoverageChecker, blockers: BlockerChecker, losses: LossChecker) -> None:
        super().__init__(world)
        self._coverage = coverage
        self._blockers = blockers
        self._losses = losses

    def after_quiet(self) -> None:
        now = self.world.clock.elapsed_seconds()
        before = now - _BOUND_SECONDS
        for text in (*self._losses.overlooked(now - _WATCH_SECONDS), *self._losses.unheard(now - _WATCH_SECONDS)):
            self.fail(f"{text}, and nobody looks")
        for text in (*self._coverage.overdue(before), *self._blockers.unseen(before)):
            self.fail(f"{text}, and nobody looks")


# A minute, and after a holder died its lease, its margin and another minute; and some seconds of the store's clock.
_WATCH_SECONDS = 230.0
_BOUND_SECONDS = 60.0 + LEASE_SECONDS + LEASE_MARGIN_SECONDS + 60.0 + 10.0


class LookAheadChecker(Checker):
    """Counts the messages that passes send ahead; a message that came too early may be sent again by its reader."""

    name = "C12"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._sent: Counter[tuple[int, str]] = Counter()
        world.queues.on_send.append(self._note)

    def after_commit(self, commit: Commit) -> None:
        if any(name == "remove_due_messages" for name, _ in commit.statements):
            self._sent.clear()

    def _note(self, process: str, queue: str, body: str) -> None:
        message = json.loads(body)
        due_at = message.get("due_at")
        if queue != "tick" or due_at is None or process.endswith(due_at):
            return
        self._sent[message["shard"], due_at] += 1
        if self._sent[message["shard"], due_at] > 1:
            self.fail(f"{process} sent a second message ahead for {due_at} of shard {message['shard']}")
