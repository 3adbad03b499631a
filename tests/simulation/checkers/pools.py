"""C4: pools are never used beyond their limit, jobs never run more often at once than they may (S31)."""

from __future__ import annotations

from collections import Counter

from tests.simulation.checkers.base import Checker
from tests.simulation.database import Commit
from tests.simulation.view import Row
from tests.simulation.world import World

_ACTIVE = ("claimed", "running")


class PoolChecker(Checker):
    """Counts for itself what live runs need."""

    name = "C4"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._active: set[str] = set()
        self._used: Counter[str] = Counter()

    def after_commit(self, commit: Commit) -> None:
        if not commit.tables & {"slots", "runs"}:
            return
        active = [row for row in self.world.view["runs"] if row["status"] in _ACTIVE]
        self._check_concurrency(active)
        wanted = {(pool, row["run_id"]): weight for row in active for pool, weight in self._needs(row).items()}
        held = {(row["pool"], row["run_id"]): row["weight"] for row in self.world.view["slots"]}
        if wanted != held:
            self.fail(f"live runs need {sorted(wanted.items())}, slots are {sorted(held.items())}")
        used: Counter[str] = Counter()
        for (pool, _), weight in wanted.items():
            used[pool] += weight
        limits = self.world.pool_limits()
        for pool, sum_of_weights in used.items():
            # a pool that was made smaller than its use grants nothing more, and takes nothing away
            if sum_of_weights > max(limits[pool], self._used[pool]):
                self.fail(f"pool {pool}: {sum_of_weights} of {limits[pool]} are in use")
        self._used = used

    def _needs(self, row: Row) -> Counter[str]:
        definition = self.world.definition(row["snapshot_id"], row["job"])
        needs = Counter({f"worker:{definition.worker}": 1})
        needs.update({pool.name: pool.weight for pool in definition.pools})
        return needs

    def _check_concurrency(self, active: list[Row]) -> None:
        """Runs claimed together count in their order of age: each finds the active ones and the older of its batch."""
        at_once = Counter(_job(row) for row in active if row["run_id"] in self._active)
        for row in active:
            if row["run_id"] in self._active:
                continue
            at_once[_job(row)] += 1
            limit = self.world.definition(row["snapshot_id"], row["job"]).concurrency
            if at_once[_job(row)] > limit:
                self.fail(
                    f"{row['run_id']} was claimed as the {at_once[_job(row)]}. of {row['job']}, which may run {limit} at once"
                )
        self._active = {row["run_id"] for row in active}


def _job(row: Row) -> tuple[str, str, str]:
    return row["location"], row["target"], row["job"]
