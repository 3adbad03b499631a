"""C17: a backfill has no waiting run of an item, no item twice, no more runs at once than allowed, and comes to its end."""

from __future__ import annotations

from collections import Counter

from chalicelib.backfills.model import Range
from tests.simulation.checkers.base import Checker
from tests.simulation.database import Commit
from tests.simulation.view import Row
from tests.simulation.world import World

_LEFT_TO = {
    "active": {"paused", "cancelling", "completed"},
    "paused": {"active", "cancelling", "completed"},
    "cancelling": {"cancelled"},
    "completed": set(),
    "cancelled": set(),
}  # fmt: skip


class BackfillChecker(Checker):
    """Follows the states of backfills and the runs that belong to them."""

    name = "C17"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._states: dict[str, str] = {}
        self._runs: dict[str, set[str]] = {}

    def after_commit(self, commit: Commit) -> None:
        if not commit.tables & {"runs", "backfills", "backfill_items"}:
            return
        backfills = {row["backfill_id"]: row for row in self.world.view["backfills"]}
        runs: dict[str, list[Row]] = {}
        for row in self.world.view["runs"]:
            if row["backfill_id"] is not None:
                runs.setdefault(row["backfill_id"], []).append(row)
        items = self._items()
        for backfill_id, row in backfills.items():
            own = runs.get(backfill_id, [])
            self._check_state(row)
            self._check_runs(row, own, items.get(backfill_id, {}))
        self._states = {backfill_id: row["state"] for backfill_id, row in backfills.items()}
        self._runs = {str(backfill_id): {row["run_id"] for row in own} for backfill_id, own in runs.items()}

    def _items(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for row in self.world.view["backfill_items"]:
            own = found.setdefault(row["backfill_id"], {})
            if row["item"] in own:
                self.fail(f"{row['item']} of {row['backfill_id']} was begun twice")
            own[row["item"]] = row["run_id"]
        return found

    def _check_state(self, row: Row) -> None:
        before = str(self._states.get(row["backfill_id"], row["state"]))
        if before != row["state"] and row["state"] not in _LEFT_TO[before]:
            self.fail(f"{row['backfill_id']} went from {before} to {row['state']}")

    def _check_runs(self, backfill: Row, runs: list[Row], items: dict[str, str]) -> None:
        backfill_id = backfill["backfill_id"]
        first = {row["run_id"] for row in runs if row["retry_of"] is None}
        if first != set(items.values()):
            self.fail(f"{backfill_id} has items {items} and runs {sorted(first)}")
        for row in runs:
            if row["retry_of"] is None and row["status"] == "queued":
                self.fail(f"{row['run_id']} of {backfill_id} waits without a claim")
        fresh = first - self._runs.get(backfill_id, set())
        unfinished = Counter(row["finished_at"] is None for row in runs)[True]
        if fresh and unfinished > backfill["max_parallel"]:
            self.fail(f"{backfill_id} has {unfinished} runs at once, {backfill['max_parallel']} are allowed")
        if fresh and self._states.get(backfill_id, "active") != "active":
            self.fail(f"{backfill_id} is {self._states[backfill_id]} and got {sorted(fresh)}")

    # --- the end

    def settled(self) -> bool:
        return all(row["finished_at"] is not None for row in self.world.view["backfills"])

    def at_end(self) -> None:
        items = self._items()
        for row in self.world.view["backfills"]:
            if row["finished_at"] is None:
                self.fail(f"{row['backfill_id']} is {row['state']} after hours without faults")
            wanted = Range.from_json(row["range_json"]).items
            if row["state"] == "completed" and len(items.get(row["backfill_id"], {})) != wanted:
                self.fail(f"{row['backfill_id']} is complete with {len(items[row['backfill_id']])} of {wanted} items")
