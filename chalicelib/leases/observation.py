"""Which boots are silent: what an observer may conclude from looking at their counters (scheduler.md 9).

The observer looks again and again within one invocation, by its own clock that counts suspension. What it did not see it
does not count: after a look that failed, hung or came late, every boot that is not clear yet starts anew. So a database,
a table or an observer that stood still condemns nobody; only a whole lease of silence that was really watched does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..cloud.ports import LeaseTable
from ..kernel.limits import LEASE_MARGIN_SECONDS, RECOVERY_LOOK_SECONDS, RECOVERY_LOOKS_PER_LEASE
from .boots import WHOLE_BOOT, boot_id_of


@dataclass(frozen=True, slots=True)
class BootItem:
    """What the item of a boot says. ``working`` are the runs whose processes it has; ``revoked`` what it was told to stop."""

    owner: str
    counter: int
    lease_seconds: int
    working: frozenset[str] = frozenset()
    revoked: frozenset[str] = frozenset()

    @property
    def stopped(self) -> bool:
        """Whether the whole boot was told to stop."""
        return WHOLE_BOOT in self.revoked


def read_boots(table: LeaseTable, partitions: Sequence[int]) -> dict[str, BootItem]:
    """Every boot of these partitions, by consistent reads of the table itself; TTL and age decide nothing (S8)."""
    return {boot_id_of(item): _boot(item) for partition in partitions for item in table.partition(f"boots#{partition}")}


def _boot(item: Mapping[str, Any]) -> BootItem:
    return BootItem(
        str(item["owner_token"]),
        int(item["counter"]),
        int(item["lease_seconds"]),
        frozenset(item.get("process_groups", ())),
        frozenset(item["revoked"]),
    )


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the boots to be watched: when it began and ended by the observer's clock, and what it saw.

    A boot that is still to be watched but has no item is there with ``None``; it counts as not moving.
    """

    began: float
    ended: float
    boots: Mapping[str, BootItem | None]


@dataclass(slots=True)
class Observation:
    """The looks of one invocation. ``lease_seconds`` is the lease of a boot that has no item to say its own.

    ``silent`` and ``moved`` are boots that are clear, each with its newest counter (``None``: no item); ``watched`` is how
    many there were at the first look (``None``: none succeeded).
    """

    lease_seconds: int
    watched: int | None = None
    silent: dict[str, int | None] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    _open: dict[str, tuple[BootItem | None, float]] = field(default_factory=dict)
    _looked_at: float | None = None
    _missed: bool = False

    @property
    def undecided(self) -> set[str]:
        """The boots that are not clear yet."""
        return set(self._open)

    def look_seconds(self) -> float:
        """How long until the next look: several in a lease, so that a gap between two is seen as one."""
        longest = max((self._needed(first) for first, _ in self._open.values()), default=0)
        return min(RECOVERY_LOOK_SECONDS, longest / RECOVERY_LOOKS_PER_LEASE)

    def add(self, look: Look) -> None:
        """Take a look into account. The first one says who is watched; whoever is not in a later one needs it no more."""
        if self._looked_at is None:
            self._open = {boot: (item, look.ended) for boot, item in look.boots.items()}
            self.watched = len(look.boots)
        else:
            late = self._missed or look.ended - self._looked_at > self.look_seconds() + LEASE_MARGIN_SECONDS
            self._open = {boot: first for boot, first in self._open.items() if boot in look.boots}
            for boot in list(self._open):
                self._compare(boot, look, late=late)
        self._looked_at, self._missed = look.ended, False

    def missed(self) -> None:
        """A look failed: what it would have seen is not known."""
        self._missed = True

    def _compare(self, boot: str, look: Look, *, late: bool) -> None:
        (first, since), now = self._open[boot], look.boots[boot]
        if now is not None and (first is None or (first.owner, first.counter) != (now.owner, now.counter)):
            self.moved[boot] = now.counter
            del self._open[boot]
        elif late or (first is not None and now is None):  # nothing was seen in between; or it has just gone
            self._open[boot] = (now, look.ended)
        elif look.began - since >= self._needed(now):
            self.silent[boot] = None if now is None else now.counter
            del self._open[boot]

    def _needed(self, item: BootItem | None) -> float:
        return (self.lease_seconds if item is None else item.lease_seconds) + LEASE_MARGIN_SECONDS
