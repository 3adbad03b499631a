"""C5, second part: a chain of retries is one line within its policy, and a rerun from failure builds what is left over (S47)."""

from __future__ import annotations

from collections import Counter

from tests.simulation.checkers.base import Checker
from tests.simulation.database import Commit
from tests.simulation.scenario import RELATIONS, node_of
from tests.simulation.view import Row
from tests.simulation.world import World

# Written here again on purpose: the product's own table must not be its own judge.
_CLASSES = {
    "launch_failed": {"accept_timeout", "start_timeout", "lost_before_start", "queue_dead"},
    "lost": {"lost", "interrupted", "killed"},
    "failed": {"tool_failed", "pre_execution", "timed_out"},
}
_DONE = {"succeeded", "warned", "carried"}
_FIXED = ("location", "target", "job", "snapshot_id", "backfill_id")


class RetryChecker(Checker):
    """Looks at each run that is new, and at each that ended, in the transaction that ended it."""

    name = "C5"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._known: dict[str, Row] = {}

    def after_commit(self, commit: Commit) -> None:
        if "runs" not in commit.tables:
            return
        runs = {row["run_id"]: row for row in self.world.view["runs"]}
        retries = Counter(row["retry_of"] for row in runs.values() if row["retry_of"] is not None)
        for run_id, count in retries.items():
            if count > 1:
                self.fail(f"{run_id} has {count} retries")
        for run_id, row in runs.items():
            before = self._known.get(run_id)
            if before is None:
                self._check_new(row, runs)
            if row["finished_at"] is not None and (before is None or before["finished_at"] is None):
                self._check_ended(row, retried=run_id in retries)
        self._known = runs

    def _check_new(self, row: Row, runs: dict[str, Row]) -> None:
        if row["retry_of"] is not None:
            self._check_retry(row, runs.get(row["retry_of"]))
        elif row["from_failed"]:
            self._check_left_over(row, runs)

    def _check_retry(self, row: Row, first: Row | None) -> None:
        if first is None or first["finished_at"] is None or row["origin"] != "retry":
            self.fail(f"{row['run_id']} is a retry of {row['retry_of']}, which has not ended")
        elif row["retry_number"] != first["retry_number"] + 1 or row["selection"] != first["selection"]:
            self.fail(f"{row['run_id']} is no repetition of {first['run_id']}")
        elif any(row[name] != first[name] for name in _FIXED):
            self.fail(f"{row['run_id']} differs from {first['run_id']}, which it retries")

    def _check_ended(self, row: Row, *, retried: bool) -> None:
        """Whether the policy asks for a retry and there is one are the same thing."""
        policy = self.world.definition(row["snapshot_id"], row["job"]).retries
        asked = (
            policy is not None
            and row["retry_number"] < policy.max
            and row["cancel_requested_at"] is None
            and any(row["end_reason"] in _CLASSES[name] for name in policy.on)
        )
        if asked != retried:
            self.fail(
                f"{row['run_id']} ended {row['status']} ({row['end_reason']}), retried: {retried}, policy: {policy}"
            )

    def _check_left_over(self, row: Row, runs: dict[str, Row]) -> None:
        original = runs[row["rerun_of"]]
        told = {n["node"]: n["status"] for n in self.world.view["run_nodes"] if n["run_id"] == original["run_id"]}
        if not told:
            return
        carried = {node for node, status in told.items() if status == "carried"}
        own = original["selection"] or self.world.definition(original["snapshot_id"], original["job"]).nodes
        line = [node_of(name) for name in RELATIONS if node_of(name) in {*own, *carried}]
        first = next((node for node in line if told.get(node) not in _DONE), None)
        # each node of the snapshot reads the one before it, so everything behind the first is below it
        everything = [node_of(name) for name in RELATIONS]
        wanted = set() if first is None else set(everything[everything.index(first) :]) & set(line)
        if set(row["selection"] or ()) != wanted:
            self.fail(f"{row['run_id']} builds {row['selection']} of {told}, left over are {sorted(wanted)}")
