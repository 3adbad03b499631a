"""C1: no commit under a replaced epoch, epochs only grow, no lease is taken from an owner that lives (S5 to S7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.kernel.limits import LEASE_MARGIN_SECONDS, LEASE_SECONDS
from tests.simulation.checkers.base import Checker
from tests.simulation.database import Commit
from tests.simulation.world import World

# What only the leader of a shard may write; people and workers reach the others by the writers' door.
_OF_LEADERS = {"ticks", "claims", "slots", "due_messages"}
_FREE = ""
# An observer's looks are one second apart.
_LOOK_SECONDS = 1.5


class EpochChecker(Checker):
    """Holds every commit of a pass against the epoch that stands, and every take-over against the owner's last sign."""

    name = "C1"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._epochs: dict[int, int] = {}
        self._moved_at: dict[str, float] = {}
        world.leases.on_update.append(self._lease_changed)

    def after_commit(self, commit: Commit) -> None:
        if "scheduler_shards" in commit.tables:
            self._follow()
        for shard, epoch in commit.fences:
            if self._epochs.get(int(str(shard))) != epoch:
                self.fail(f"{commit.process} wrote shard {shard} under epoch {epoch}; {self._epochs} stand")
        by_pass = commit.process.startswith("pass ")
        if by_pass and not commit.fences and commit.tables & _OF_LEADERS:
            self.fail(f"{commit.process} wrote {sorted(commit.tables & _OF_LEADERS)} without the fence")

    def _follow(self) -> None:
        after = {row["shard"]: row["epoch"] for row in self.world.view["scheduler_shards"]}
        for shard, epoch in after.items():
            if epoch < self._epochs.get(shard, epoch):
                self.fail(f"the epoch of shard {shard} fell from {self._epochs[shard]} to {epoch}")
        self._epochs = after

    def _lease_changed(self, pk: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> None:
        if not pk.startswith("sched#"):
            return
        now = self.world.clock.elapsed_seconds()
        owner = before["owner_token"] if before else _FREE
        if owner not in {_FREE, after["owner_token"]} and after["owner_token"] != _FREE:
            unchanged = now - self._moved_at[pk]
            if unchanged < LEASE_SECONDS + LEASE_MARGIN_SECONDS - _LOOK_SECONDS:
                self.fail(f"{pk} was taken from {owner}, which had moved {unchanged:.1f} s before")
        if before is None or before["counter"] != after["counter"]:
            self._moved_at[pk] = now
