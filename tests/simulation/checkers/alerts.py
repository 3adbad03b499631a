"""C15: a condition that lasts is one open alert, it holds when it is opened, and it closes when it has ended (S24)."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from tests.simulation.checkers.base import Checker
from tests.simulation.database import Commit
from tests.simulation.view import Row
from tests.simulation.world import World

_ACTIVE = {"claimed", "running"}
_WAITING = timedelta(minutes=30) - timedelta(seconds=15)
_OF_RUNS = {"run_lost", "run_waiting", "run_overdue", "launch_failed"}


class AlertChecker(Checker):
    """Judges the alerts about runs by the runs."""

    name = "C15"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._open: set[tuple[str, str, str]] = set()

    def after_commit(self, commit: Commit) -> None:
        if not commit.tables & {"platform_alerts", "runs"}:
            return
        rows = [row for row in self.world.view["platform_alerts"] if row["closed_at"] is None]
        counts = Counter((row["condition"], row["subject"]) for row in rows)
        for key, count in counts.items():
            if count > 1:
                self.fail(f"{key} has {count} open alerts")
        runs = {row["run_id"]: row for row in self.world.view["runs"]}
        opened = {(row["condition"], row["subject"], row["episode"]) for row in rows}
        for condition, subject, _ in sorted(opened - self._open):
            if condition in _OF_RUNS and not self._holds(condition, runs.get(subject), commit):
                self.fail(f"{condition} of {subject} was opened, which is {runs.get(subject)}")
        self._open = opened
        for row in runs.values():
            if _is_marked(row) and counts[("run_lost", row["run_id"])] == 0:
                self.fail(f"{row['run_id']} is marked, and nobody is told")

    def _holds(self, condition: str, run: Row | None, commit: Commit) -> bool:
        if run is None:
            return False
        if condition == "run_lost":
            return _is_marked(run)
        if condition == "launch_failed":
            return bool(run["status"] == "launch_failed")
        if condition == "run_waiting":
            old = commit.now - run["created_at"] >= _WAITING
            return run["status"] == "queued" and (old or self._never_fits(run))
        return run["status"] == "running" and run["heartbeat_lost_at"] is None

    def _never_fits(self, run: Row) -> bool:
        return any(
            row["run_id"] == run["run_id"] and row["code"] == "pool_never_fits"
            for row in self.world.view["run_blockers"]
        )

    def after_pass(self, shard: int) -> None:
        """The scan of a pass closes whatever has ended, of all shards."""
        runs = {row["run_id"]: row for row in self.world.view["runs"]}
        for row in self.world.view["platform_alerts"]:
            run = runs.get(row["subject"])
            if row["closed_at"] is None and not self._lasts(row["condition"], run):
                self.fail(f"{row['condition']} of {row['subject']} is open, which is {run and run['status']}")

    def _lasts(self, condition: str, run: Row | None) -> bool:
        if condition == "run_lost":
            return run is not None and _is_marked(run)
        if condition == "run_waiting":
            return run is not None and run["status"] == "queued"
        return condition != "run_overdue" or (run is not None and run["status"] == "running")


def _is_marked(run: Row) -> bool:
    return run["heartbeat_lost_at"] is not None and run["status"] in _ACTIVE
