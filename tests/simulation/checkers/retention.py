"""C16: nothing goes that is younger than its keeping time, or that something still needs (scheduler.md 16)."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.simulation.checkers.base import Checker
from tests.simulation.database import Commit
from tests.simulation.view import Row
from tests.simulation.world import World


class RetentionChecker(Checker):
    """Compares what was there before a commit with what is there after it; tells ``Answers`` which ids are forgotten."""

    name = "C16"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._kept = timedelta(days=world.scenario.kept_days)
        self._runs: dict[str, Row] = {}
        self._backfills: dict[str, Row] = {}
        self._snapshots: set[str] = set()

    def after_commit(self, commit: Commit) -> None:
        if "runs" in commit.tables:
            self._follow_runs(commit.now)
        if "backfills" in commit.tables:
            self._follow_backfills(commit.now)
        if "snapshots" in commit.tables:
            self._follow_snapshots()

    def _follow_runs(self, now: datetime) -> None:
        runs = {row["run_id"]: row for row in self.world.view["runs"]}
        for run_id in self._runs.keys() - runs.keys():
            self._check_run(self._runs[run_id], runs, now)
            self.world.answers.forget(run_id)
        self._runs = runs

    def _check_run(self, gone: Row, runs: dict[str, Row], now: datetime) -> None:
        run_id = gone["run_id"]
        if gone["finished_at"] is None or gone["finished_at"] > now - self._kept:
            self.fail(f"{run_id} is gone at {now}, {gone['status']} since {gone['finished_at']}")
        if any(row["run_id"] == run_id for row in self.world.view["write_claims"]):
            self.fail(f"{run_id} is gone and holds relations")
        for row in runs.values():
            if row["retry_of"] == run_id and row["finished_at"] is None:
                self.fail(f"{run_id} is gone, and {row['run_id']} retries it")
        if any(row["backfill_id"] == gone["backfill_id"] for row in self.world.view["backfills"]):
            self.fail(f"{run_id} is gone, and its backfill {gone['backfill_id']} is not")

    def _follow_backfills(self, now: datetime) -> None:
        backfills = {row["backfill_id"]: row for row in self.world.view["backfills"]}
        for backfill_id in self._backfills.keys() - backfills.keys():
            ended = self._backfills[backfill_id]["finished_at"]
            if ended is None or ended > now - self._kept:
                self.fail(f"{backfill_id} is gone at {now}, and ended at {ended}")
            self.world.answers.forget(backfill_id)
        self._backfills = backfills

    def _follow_snapshots(self) -> None:
        snapshots = {row["snapshot_id"] for row in self.world.view["snapshots"]}
        needed = {row["snapshot_id"] for row in (*self.world.view["runs"], *self.world.view["current_snapshots"])}
        for snapshot_id in self._snapshots - snapshots:
            if snapshot_id in needed:
                self.fail(f"the snapshot {snapshot_id} is gone and needed")
            self.world.answers.forget(snapshot_id)
        self._snapshots = snapshots
