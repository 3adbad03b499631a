"""C5: only listed transitions, terminal rows never change, an accepted cancel wins (S35, S45)."""

from __future__ import annotations

from tests.simulation.checkers.base import Checker
from tests.simulation.database import Commit
from tests.simulation.view import Row
from tests.simulation.world import World

# Written here again on purpose: the product's own table must not be its own judge.
LISTED = {
    "queued": {"claimed", "cancelled"},
    "claimed": {"running", "launch_failed", "cancelled"},
    "running": {"succeeded", "failed", "cancelled"},
    "succeeded": set(),
    "failed": set(),
    "cancelled": set(),
    "launch_failed": set(),
}  # fmt: skip
_FIXED = (
    "location", "target", "job", "snapshot_id", "origin", "trigger_id", "created_at", "rerun_of", "retry_of", "retry_number",
    "backfill_id", "selection", "not_before",
)  # fmt: skip
# What may still be noted of a run that has ended: that an operator freed what it held.
_LATER = ("resolve_id", "shard")


class StateChecker(Checker):
    """Compares the runs before and after every commit."""

    name = "C5"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._before: dict[str, Row] = {}

    def after_commit(self, commit: Commit) -> None:
        if "runs" not in commit.tables:
            return
        after = {row["run_id"]: row for row in self.world.view["runs"]}
        removed = any(name == "remove_runs" for name, _ in commit.statements)
        for run_id in self._before.keys() - after.keys():
            if not removed:
                self.fail(f"{run_id} is gone")
        for run_id, row in after.items():
            before = self._before.get(run_id)
            if before is None:
                self._check_new(row)
            elif before is not row and before != row:
                self._check_change(before, row)
        self._before = after

    def _check_new(self, row: Row) -> None:
        # the item of a backfill becomes a run only where it is claimed, too
        if row["status"] != ("claimed" if row["backfill_id"] is not None and row["retry_of"] is None else "queued"):
            self.fail(f"{row['run_id']} begins {row['status']}")

    def _check_change(self, before: Row, after: Row) -> None:
        run_id, old, new = after["run_id"], before["status"], after["status"]
        if not LISTED[old] and any(before[name] != after[name] for name in before if name not in _LATER):
            self.fail(f"{run_id} is {old} and changed: {_difference(before, after)}")
        if old != new and new not in LISTED[old]:
            self.fail(f"{run_id} went from {old} to {new}")
        if any(before[name] != after[name] for name in _FIXED):
            self.fail(f"{run_id} changed what is fixed at queueing: {_difference(before, after)}")
        if before["cancel_requested_at"] is not None and not LISTED[new] and new != "cancelled":
            self.fail(f"{run_id} was asked to cancel and ended {new}")

    def at_end(self) -> None:
        """What people were told was accepted is what happened."""
        for kind, _, answer in self.world.answers.given():
            if kind == "cancel":
                row = self.world.view.run(answer["run_id"])
                if row is None and self.world.overlaps:
                    continue  # nobody followed what retention removed
                if row is None or row["status"] != "cancelled":
                    self.fail(f"the cancel of {answer['run_id']} was accepted, and it is {row and row['status']}")


def _difference(before: Row, after: Row) -> str:
    return ", ".join(f"{name} {before[name]} -> {after[name]}" for name in after if before[name] != after[name])
