"""C6: every queued run has a blocker that is true, and when faults stop every run ends (S32, S34)."""

from __future__ import annotations

from datetime import timedelta

from tests.simulation.checkers.base import Checker
from tests.simulation.view import Row
from tests.simulation.world import World

_PASS = timedelta(seconds=5)
_WAITED_LONG = timedelta(minutes=15) - timedelta(seconds=15)


class BlockerChecker(Checker):
    """Looks right after each clean pass, and follows the runs that were open when calm began."""

    name = "C6"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._open: set[str] = set()

    def after_pass(self, shard: int) -> None:
        blockers = self._stored()
        for run in self.world.view["runs"]:
            if run["shard"] != shard:
                continue
            stored = blockers.get(run["run_id"], [])
            if run["status"] == "queued" and not self._is_held_back(run, stored):
                shown = [(row["code"], row["subject"]) for row in stored]
                self.fail(f"{run['run_id']} waits after a pass, and nothing of {shown} is true")
            if run["status"] != "queued" and stored:
                self.fail(f"{run['run_id']} is {run['status']} and has blockers {stored}")

    def unseen(self, before: float) -> list[str]:
        """Runs that wait since before that simulated second although nothing holds them back."""
        since = self.world.scenario.start + timedelta(seconds=before)
        blockers = self._stored()
        return [
            f"{run['run_id']} waits for nothing since {run['created_at']}"
            for run in self.world.view["runs"]
            if run["status"] == "queued" and run["created_at"] < since
            if not self._behind(run) and not blockers.get(run["run_id"])
        ]

    def _stored(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self.world.view["run_blockers"]:
            found.setdefault(row["run_id"], []).append(row)
        return found

    def _is_held_back(self, run: Row, stored: list[Row]) -> bool:
        return self._behind(run) or any(self._is_true(run, blocker) for blocker in stored)

    def _delayed(self, run: Row) -> bool:
        # a pass sees the moment of its transactions, which lies a little before now
        return run["not_before"] is not None and run["not_before"] > self.world.store_now() - _PASS

    def _behind(self, run: Row) -> bool:
        """Whether it is not due yet, or the job's limit holds it back: active runs, and older ones in the queue."""
        if self._delayed(run):
            return True
        limit = self.world.definition(run["snapshot_id"], run["job"]).concurrency
        same = [
            other
            for other in self.world.view["runs"]
            if (other["location"], other["target"], other["job"]) == (run["location"], run["target"], run["job"])
        ]
        active = sum(other["status"] in {"claimed", "running"} for other in same)
        ahead = sum(
            other["status"] == "queued"
            and not self._delayed(other)
            and (other["created_at"], other["run_id"]) < (run["created_at"], run["run_id"])
            for other in same
        )
        return bool(active + ahead >= limit)

    def _is_true(self, run: Row, blocker: Row) -> bool:
        code, subject, detail = blocker["code"], blocker["subject"], blocker["detail"]
        if code == "held_for_older_run":
            older = self.world.view.run(detail["older"])
            return (
                older is not None
                and older["status"] == "queued"
                and older["created_at"] <= run["created_at"]
                and older["created_at"] <= self.world.store_now() - _WAITED_LONG
            )
        if code in {"no_worker_capacity", "pool_full", "pool_never_fits"}:
            return self._pool_is_full(run, f"worker:{subject}" if code == "no_worker_capacity" else subject)
        if code in {"write_claim", "write_claim_settling"}:
            return any(
                (row["warehouse"], row["relation"], row["run_id"])
                == (detail["warehouse"], detail["relation"], detail["holder"])
                and (row["release_after"] is not None) == (code == "write_claim_settling")
                for row in self.world.view["write_claims"]
            )
        if code == "location_disabled":
            return any(row["location"] == run["location"] and row["disabled"] for row in self.world.view["locations"])
        return False

    def _pool_is_full(self, run: Row, pool: str) -> bool:
        definition = self.world.definition(run["snapshot_id"], run["job"])
        needs = {f"worker:{definition.worker}": 1} | {p.name: p.weight for p in definition.pools}
        limits = self.world.pool_limits()
        used = sum(row["weight"] for row in self.world.view["slots"] if row["pool"] == pool)
        return bool(used + needs.get(pool, 0) > limits[pool])

    # --- the end of every run

    def begin_calm(self) -> None:
        self._open = {row["run_id"] for row in self.world.view["runs"] if row["finished_at"] is None}

    def settled(self) -> bool:
        waiting = {row["run_id"] for row in self.world.view["runs"] if row["finished_at"] is None}
        held = {row["run_id"] for row in self.world.view["write_claims"]}
        return not self._open & (waiting | held)

    def at_end(self) -> None:
        if not self.settled():
            left = [
                row for row in self.world.view["runs"] if row["run_id"] in self._open and row["finished_at"] is None
            ]
            shown = [(row["run_id"], row["status"], str(row["cancel_requested_at"])) for row in left]
            self.fail(f"after hours without faults these have not ended: {shown}")
