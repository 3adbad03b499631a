"""What every checker offers."""

from __future__ import annotations

from typing import ClassVar

from tests.simulation.database import Commit
from tests.simulation.violations import Violation
from tests.simulation.world import World


class Checker:
    """Looks after each commit that changed something, after each clean pass, after each step, and at the end."""

    name: ClassVar[str]

    def __init__(self, world: World) -> None:
        self.world = world

    def after_commit(self, commit: Commit) -> None:
        """A transaction has changed something."""

    def after_pass(self, shard: int) -> None:
        """A pass over this shard has ended that no fault struck; time has not moved since."""

    def after_step(self) -> None:
        """A step has ended, or was interrupted."""

    def begin_calm(self) -> None:
        """From here on there are no faults."""

    def after_quiet(self) -> None:
        """Some minutes without faults have passed."""

    def settled(self) -> bool:
        """Whether all that this checker waits for has happened; asked after each calm round."""
        return True

    def at_end(self) -> None:
        """Everything has settled."""

    def fail(self, text: str) -> None:
        """Report a finding."""
        raise Violation(self.name, text)
