"""What publishing needs of the packages above: someone who keeps triggers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..database import Transaction
from ..projects.bundle import TriggerKind


@dataclass(frozen=True, slots=True)
class DeclaredTrigger:
    """A trigger as the snapshot declares it. ``trigger_id`` is ``location/target/name``, name ``job/...``."""

    trigger_id: str
    location: str
    target: str
    name: str
    job: str
    kind: TriggerKind
    spec: dict[str, Any]
    enabled: bool
    shard: int


@dataclass(frozen=True, slots=True)
class MergedTriggers:
    """How many triggers the merge added, changed, left alone and removed."""

    added: int
    changed: int
    kept: int
    removed: int


class TriggerKeeper(Protocol):
    """Merges declared triggers with the kept ones by name (scheduler.md 4.4); implemented by ``schedules``."""

    def merge(self, tx: Transaction, location: str, target: str, declared: Sequence[DeclaredTrigger]) -> MergedTriggers:
        """Make the triggers of the target the declared ones, inside the publication's transaction."""
