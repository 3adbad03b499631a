"""Backfills: people start them over occurrences and over days, pause them, go on with them, and cancel them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar

from chalicelib.backfills.model import BackfillRequest, BackfillView, Range
from chalicelib.kernel.clock import instant_text
from tests.simulation.drivers.base import Act, Driver
from tests.simulation.drivers.people import PeopleDriver, client_id
from tests.simulation.history import Step
from tests.simulation.occurrences import occurrences_around
from tests.simulation.scenario import Target
from tests.simulation.world import World

_FIXED = {
    "backfill_id",
    "location",
    "target",
    "job",
    "snapshot_id",
    "over",
    "from_",
    "to",
    "schedule",
    "items",
    "max_parallel",
}
# The store's clock may be behind by a few seconds, and what lies ahead is refused.
_PAST = timedelta(seconds=15)
_ITEMS_MAX = 6


class BackfillDriver(Driver):
    """A few small backfills; in calm those that were paused go on."""

    WEIGHTS: ClassVar[Mapping[str, int]] = {"backfill": 3, "backfill_state": 4}

    def __init__(self, world: World, people: PeopleDriver) -> None:
        super().__init__(world)
        self._people = people

    def actions(self) -> Mapping[str, Act]:
        return {"backfill": self._start, "backfill_state": self._change}

    def settle(self) -> None:
        for row in self.world.view["backfills"]:
            # one that became long because its schedule was changed just then would last for days
            many = row["finished_at"] is None and Range.from_json(row["range_json"]).items > _ITEMS_MAX
            if many or row["state"] == "paused":
                chance = self.calm_chance(row["backfill_id"])
                self._set_state(row["backfill_id"], "cancel" if many else "resume", Step("", 0.0, 0), chance)

    def _start(self, step: Step, chance: random.Random) -> None:
        target = chance.choice(self.world.scenario.targets)
        fields = self._occurrences(target, chance) if chance.random() < 0.6 else None
        fields = fields or self._days(target, chance)
        request = BackfillRequest.model_validate(
            {
                "backfill_id": client_id("bf", chance),
                "location": target.location,
                "target": target.target,
                "max_parallel": chance.choice((1, 1, 2, 3)),
                **fields,
            }
        )
        self._people.ask(
            f"backfill {request.job} {request.over} {request.backfill_id}",
            lambda: self.world.api.backfills.start(request, "ada"),
            lambda answer: self._record(*answer),
            lambda code: self.world.answers.refuse("backfill", request.backfill_id, code),
            expected=("not_found", "invalid_request"),  # the job, or its schedule, is another one now
            chance=chance,
            faults=step.faults,
        )

    def _occurrences(self, target: Target, chance: random.Random) -> dict[str, Any] | None:
        """The last few of a schedule as it stands."""
        place = f"{target.location}/{target.target}/"
        triggers = [row for row in self.world.view["trigger_state"] if row["trigger_id"].startswith(place)]
        if not triggers:
            return None
        row = chance.choice(triggers)
        until = self.world.clock.now() - _PAST
        occurrences = occurrences_around(row["spec"]["cron"], row["spec"]["timezone"], self.world.scenario.start.date())
        before = [at for at in occurrences if at < until]
        if not before:
            return None
        name = row["trigger_id"].removeprefix(place)
        first = before[-min(len(before), chance.randint(1, 5))]
        return {
            "job": name.partition("/")[0], "over": "occurrences", "schedule": name,
            "from": instant_text(first), "to": instant_text(until),
        }  # fmt: skip

    def _days(self, target: Target, chance: random.Random) -> dict[str, Any]:
        versions = self.world.scenario.versions[target.location, target.target]
        job = chance.choice(sorted(chance.choice(versions).index.jobs))
        first = self.world.scenario.start.date() - timedelta(days=chance.randint(5, 50))
        until = first + timedelta(days=chance.randint(1, 5))
        return {
            "job": job,
            "over": "partitions",
            "step": "day",
            "start_input": "day",
            "from": f"{first}",
            "to": f"{until}",
        }

    def _record(self, view: BackfillView, reused: bool) -> None:
        self.world.answers.record(
            "backfill", view.backfill_id, view.model_dump(mode="json", include=_FIXED), run_id=view.backfill_id
        )

    def _change(self, step: Step, chance: random.Random) -> None:
        rows = [row["backfill_id"] for row in self.world.view["backfills"] if row["finished_at"] is None]
        if rows:
            self._set_state(chance.choice(rows), chance.choice(("pause", "pause", "resume", "cancel")), step, chance)

    def _set_state(self, backfill_id: str, wanted: str, step: Step, chance: random.Random) -> None:
        backfills = self.world.api.backfills

        def change() -> BackfillView:
            if wanted == "cancel":
                return backfills.cancel(backfill_id, "ada")
            return backfills.pause(backfill_id) if wanted == "pause" else backfills.resume(backfill_id)

        self.world.request(
            f"{wanted} {backfill_id}", chance, step.faults, change, expected=("already_finished", "not_found")
        )
