"""C14: silence marks a run and does nothing else; only a proof, or never having started, ends it (S30, S44)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from chalicelib.kernel.limits import (
    LAMBDA_LIFE_MARGIN_SECONDS,
    LAMBDA_LIFE_SECONDS,
    LEASE_MARGIN_SECONDS,
    LEASE_SECONDS,
)
from tests.simulation.checkers.base import Checker
from tests.simulation.database import Commit
from tests.simulation.view import Row
from tests.simulation.world import World

_ACTIVE = {"claimed", "running"}
# A look of an observer begins a moment before the beat that it does not see.
_LOOK_SECONDS = 1.5
_CLOCK_SECONDS = 15.0


class LossChecker(Checker):
    """Knows when every boot really beat, and which processes really live."""

    name = "C14"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._beats: dict[str, list[float]] = {}
        self._gone: dict[str, float] = {}
        self._before: dict[str, Row] = {}
        self._claims: dict[str, Row] = {}
        world.leases.on_update.append(self._boot_changed)

    def _boot_changed(self, pk: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> None:
        if pk.startswith("boots#") and (before is None or before["counter"] != after["counter"]):
            boot = str(after["sk"]).removeprefix("boot#")
            self._beats.setdefault(boot, []).append(self.world.clock.elapsed_seconds())

    def after_commit(self, commit: Commit) -> None:
        if not commit.tables & {"runs", "claims"}:
            return
        runs = {row["run_id"]: row for row in self.world.view["runs"]}
        claims = {row["run_id"]: row for row in self.world.view["claims"] if row["ended_at"] is None}
        for run_id, row in runs.items():
            before = self._before.get(run_id)
            if before is not None and before != row and before["status"] in _ACTIVE:
                self._check_change(before, row, self._claims.get(run_id), commit)
        self._before, self._claims = runs, claims

    def _check_change(self, before: Row, after: Row, claim: Row | None, commit: Commit) -> None:
        if claim is None:
            self.fail(f"{after['run_id']} is {before['status']} without a claim")
        elif before["heartbeat_lost_at"] is None and after["heartbeat_lost_at"] is not None:
            self._check_mark(after, str(claim["boot_id"]))
        elif after["end_reason"] == "lost" and before["end_reason"] is None:
            self._check_lost(before, after, claim, commit)
        elif after["end_reason"] == "lost_before_start" and before["end_reason"] is None:
            self._check_unstarted(before, after, commit)

    def _check_mark(self, row: Row, boot: str) -> None:
        beats = [*self._beats.get(boot, ()), self.world.clock.elapsed_seconds()]
        longest = max((later - sooner for sooner, later in itertools.pairwise(beats)), default=None)
        if longest is not None and longest < LEASE_SECONDS + LEASE_MARGIN_SECONDS - _LOOK_SECONDS:
            self.fail(f"{row['run_id']} was marked, and {boot} was never silent for longer than {longest:.1f} s")

    def _check_lost(self, before: Row, after: Row, claim: Row, commit: Commit) -> None:
        if self.world.warehouses.process_lives(claim["claim_id"]):
            self.fail(f"{after['run_id']} ended as lost, and its process on {claim['boot_id']} lives")
        seen = "lock_runs_of_boots" in {name for name, _ in commit.statements}
        if seen and before["heartbeat_lost_at"] is None:
            self.fail(f"{after['run_id']} was ended by recovery without having been marked")
        life = LAMBDA_LIFE_SECONDS + LAMBDA_LIFE_MARGIN_SECONDS - _CLOCK_SECONDS
        if seen and (commit.now - claim["accepted_at"]).total_seconds() < life:
            self.fail(f"{after['run_id']} was ended by recovery, and nothing proves that {claim['boot_id']} has ended")

    def _check_unstarted(self, before: Row, after: Row, commit: Commit) -> None:
        if before["status"] != "claimed":
            self.fail(f"{after['run_id']} was {before['status']} and ended lost_before_start")
        recovery = "lock_runs_of_boots" in {name for name, _ in commit.statements}
        if recovery and before["heartbeat_lost_at"] is None:
            self.fail(f"{after['run_id']} was ended by recovery without having been marked")

    # --- what quiet minutes must bring

    def overlooked(self, before: float) -> list[str]:
        """Runs of boots that are silent since before that simulated second and are not marked."""
        boots = {row["run_id"]: row["boot_id"] for row in self.world.view["claims"] if row["ended_at"] is None}
        return [
            f"{row['run_id']} on {boots[row['run_id']]} is not marked, which is silent"
            for row in self.world.view["runs"]
            if row["status"] in _ACTIVE and row["heartbeat_lost_at"] is None
            if (beats := self._beats.get(str(boots.get(row["run_id"])))) is not None and beats[-1] < before
        ]

    def unheard(self, after: float) -> list[str]:
        """Runs that are still marked although their boot beats all the time since that simulated second."""
        boots = {row["run_id"]: row["boot_id"] for row in self.world.view["claims"] if row["ended_at"] is None}
        return [
            f"{row['run_id']} is marked, and {boots[row['run_id']]} beats"
            for row in self.world.view["runs"]
            if row["status"] in _ACTIVE and row["heartbeat_lost_at"] is not None
            if self._beats_since(str(boots.get(row["run_id"])), after)
        ]

    def _beats_since(self, boot: str, since: float) -> bool:
        beats = [at for at in self._beats.get(boot, ()) if at >= since]
        times = [since, *beats, self.world.clock.elapsed_seconds()]
        return bool(beats) and all(later - sooner < LEASE_SECONDS for sooner, later in itertools.pairwise(times))
