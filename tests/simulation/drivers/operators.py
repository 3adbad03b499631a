"""Operators: they rerun what ended, resolve what nothing else can end, and shrink and grow pools."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from chalicelib.runs.model import RerunRequest, ResolveRequest, RunView
from chalicelib.runs.pools import PoolChange, Precondition
from chalicelib.runs.resolving import ResolveAnswer
from tests.simulation.board import Fault
from tests.simulation.drivers.base import Act, Driver
from tests.simulation.drivers.boots import Fleet
from tests.simulation.drivers.people import PeopleDriver, client_id
from tests.simulation.history import Step
from tests.simulation.view import Row
from tests.simulation.world import World

_ANY = Precondition(if_match=frozenset({"*"}))
_LIMITS = (1, 2, 3, 4)


class OperatorDriver(Driver):
    """``fleets`` are all there are, so that an operator can make sure that a process is gone before he resolves its run."""

    WEIGHTS: ClassVar[Mapping[str, int]] = {"rerun": 5, "resolve": 7, "pool": 2}

    def __init__(self, world: World, people: PeopleDriver, fleet: Fleet) -> None:
        super().__init__(world)
        self._people = people
        self._fleet = fleet

    def actions(self) -> Mapping[str, Act]:
        return {"rerun": self._rerun, "resolve": self._resolve_one, "pool": self._pool}

    def settle(self) -> None:
        """Pools are as they were, and what nobody can prove ended is resolved."""
        limits = {row["pool"]: row["slot_limit"] for row in self.world.view["pools"]}
        if limits["default"] != self.world.scenario.pool_limit:
            self._set_pool(self.world.scenario.pool_limit, self.calm_chance("pool"), ())
        unproved = {boot.boot_id for boot in self._fleet.boots if boot.dead and boot.proof == "none"}
        boots = {row["run_id"]: row["boot_id"] for row in self.world.view["claims"] if row["ended_at"] is None}
        for row in self._marked():
            if boots.get(row["run_id"]) in unproved:
                self._resolve(row["run_id"], self.calm_chance(row["run_id"]), ())

    # --- reruns

    def _rerun(self, step: Step, chance: random.Random) -> None:
        ended = [row["run_id"] for row in self.world.view["runs"] if row["finished_at"] is not None]
        if not ended:
            return
        how = chance.choice(("as it was", "current", "from failed", "from failed"))
        request = RerunRequest(
            run_id=client_id("run", chance), current=how == "current", from_failed=how == "from failed"
        )
        original = chance.choice(ended)
        self._people.ask(
            f"rerun {original} {how} {request.run_id}",
            lambda: self.world.api.runs.rerun(original, request, "ada"),
            lambda answer: self._record_rerun(*answer),
            lambda code: self.world.answers.refuse("rerun", request.run_id, code),
            expected=("not_found", "nothing_to_rerun", "not_terminal"),
            chance=chance,
            faults=step.faults,
        )

    def _record_rerun(self, view: RunView, reused: bool) -> None:
        names = (
            "run_id",
            "location",
            "target",
            "job",
            "snapshot_id",
            "inputs",
            "origin",
            "created_at",
            "rerun_of",
            "selection",
        )
        self.world.answers.record(
            "rerun", view.run_id, view.model_dump(mode="json", include=set(names)), run_id=view.run_id
        )

    # --- resolving

    def _marked(self) -> list[Row]:
        return [
            row
            for row in self.world.view["runs"]
            if row["heartbeat_lost_at"] is not None and row["finished_at"] is None
        ]

    def _resolve_one(self, step: Step, chance: random.Random) -> None:
        held = {row["run_id"] for row in self.world.view["write_claims"] if row["release_after"] is not None}
        runs = [row["run_id"] for row in self._marked()] + sorted(held)
        if runs and not self.world.overlaps:
            self._resolve(chance.choice(runs), chance, step.faults)

    def _resolve(self, run_id: str, chance: random.Random, faults: Sequence[Fault]) -> None:
        """First it is made sure that nothing of the run works any more: that is what a resolution claims."""
        for stop in self.world.stop_work:
            stop(run_id, chance)
        outcomes: Sequence[Literal["succeeded", "failed", "cancelled"]] = ("succeeded", "failed", "cancelled")
        outcome = chance.choice(outcomes)
        request = ResolveRequest(resolve_id=client_id("res", chance), outcome=outcome, reason="looked after it")
        self._people.ask(
            f"resolve {run_id} {outcome}",
            lambda: self.world.api.runs.resolve(run_id, request, "ada"),
            self._record_resolution,
            lambda code: self.world.answers.refuse("resolve", request.resolve_id, code),
            expected=("already_finished", "still_beating", "not_terminal", "invalid_request", "not_found"),
            chance=chance,
            faults=faults,
        )

    def _record_resolution(self, answer: ResolveAnswer) -> None:
        self.world.answers.record("resolve", answer.resolve_id, answer.model_dump(mode="json"), run_id=answer.run_id)

    # --- pools

    def _pool(self, step: Step, chance: random.Random) -> None:
        self._set_pool(chance.choice(_LIMITS), chance, step.faults)

    def _set_pool(self, limit: int, chance: random.Random, faults: Sequence[Fault]) -> None:
        self.world.request(
            f"pool default {limit}",
            chance,
            faults,
            lambda: self.world.api.pools.set("default", PoolChange(limit=limit), _ANY),
        )
