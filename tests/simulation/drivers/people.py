"""People: they publish, request, cancel, switch, and repeat what they asked when no answer came."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from chalicelib.catalog.model import PublishRequest, PublishResult
from chalicelib.runs.cancelling import CancelAnswer
from chalicelib.runs.model import CancelRequest, RunRequest, RunView
from chalicelib.schedules.views import TriggerView
from tests.simulation.board import Fault
from tests.simulation.drivers.base import Act, Driver
from tests.simulation.history import Step
from tests.simulation.scenario import Target
from tests.simulation.world import World

_LATEST = 12


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with a client-made id, as it can be sent again."""

    name: str
    send: Callable[[random.Random, Sequence[Fault]], None]


class PeopleDriver(Driver):
    """Requests of people and of continuous integration."""

    WEIGHTS: ClassVar[Mapping[str, int]] = {
        "request": 10,
        "cancel": 6,
        "publish": 4,
        "switch": 5,
        "location": 1,
        "repeat": 5,
    }

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._asked: list[Asked] = []

    def actions(self) -> Mapping[str, Act]:
        return {
            "request": self._request,
            "cancel": self._cancel,
            "publish": self._publish,
            "switch": self._switch,
            "location": self._location,
            "repeat": self._repeat,
        }

    def begin(self) -> None:
        """The first version of each project, without faults."""
        for number, target in enumerate(self.world.scenario.targets):
            self._ask_publication(target, 0, self.calm_chance(f"publish {number}"), ())

    def settle(self) -> None:
        """Locations are enabled again, so that what waits for them can end."""
        for row in self.world.view["locations"]:
            if row["disabled"]:
                self._set_location(row["location"], False, self.calm_chance("people"), ())

    def close(self) -> None:
        """All schedules are switched off: the last runs must end without new ones."""
        for row in self.world.view["trigger_state"]:
            location, target, name = row["trigger_id"].split("/", 2)
            request_id = client_id("req", self.calm_chance(row["trigger_id"]))
            self.world.request(
                f"switch off {name}",
                self.calm_chance(name),
                (),
                partial(
                    self.world.api.schedules.set_enabled, location, target, name, enabled=False, request_id=request_id
                ),
            )

    # --- steps

    def _request(self, step: Step, chance: random.Random) -> None:
        self.request(chance, step.faults)

    def request(self, chance: random.Random, faults: Sequence[Fault]) -> None:
        """Somebody asks for a run of some job."""
        target = chance.choice(self.world.scenario.targets)
        versions = self.world.scenario.versions[target.location, target.target]
        job = chance.choice(sorted(chance.choice(versions).index.jobs))
        request = RunRequest(run_id=client_id("run", chance))
        self.ask(
            f"request {job} {request.run_id}",
            lambda: self.world.api.runs.request(target.location, target.target, job, request, "ada"),
            lambda answer: self._record_request(*answer),
            lambda code: self.world.answers.refuse("request", request.run_id, code),
            expected=("not_found",),
            chance=chance,
            faults=faults,
        )

    def _record_request(self, view: RunView, reused: bool) -> None:
        names = ("run_id", "location", "target", "job", "snapshot_id", "inputs", "origin", "created_at")
        self.world.answers.record(
            "request", view.run_id, view.model_dump(mode="json", include=set(names)), run_id=view.run_id
        )

    def _cancel(self, step: Step, chance: random.Random) -> None:
        runs = [row["run_id"] for row in self.world.view["runs"] if row["finished_at"] is None]
        if not runs:
            return
        run_id = chance.choice(runs)
        request = CancelRequest(cancel_id=client_id("can", chance))
        self.ask(
            f"cancel {run_id}",
            lambda: self.world.api.runs.cancel(run_id, request, "ada"),
            lambda answer: self._record_cancel(request.cancel_id, answer),
            lambda code: self.world.answers.refuse("cancel", request.cancel_id, code),
            expected=("already_finished", "not_found"),
            chance=chance,
            faults=step.faults,
        )

    def _record_cancel(self, cancel_id: str, answer: CancelAnswer) -> None:
        # a later asker is told about the first request; nothing of his own is kept
        if answer.status != "already_requested":
            self.world.answers.record("cancel", cancel_id, answer.model_dump(mode="json"), run_id=answer.run_id)

    def _publish(self, step: Step, chance: random.Random) -> None:
        target = chance.choice(self.world.scenario.targets)
        versions = len(self.world.scenario.versions[target.location, target.target])
        self._ask_publication(target, chance.randrange(versions), chance, step.faults)

    def _ask_publication(self, target: Target, number: int, chance: random.Random, faults: Sequence[Fault]) -> None:
        version = self.world.scenario.versions[target.location, target.target][number]
        request = PublishRequest(
            publication_id=client_id("pub", chance), snapshot_id=version.snapshot_id, index=version.index
        )
        self.ask(
            f"publish {target.location} {number}",
            lambda: self.world.api.catalog.publish(target.location, target.target, request, "ci"),
            self._record_publication,
            lambda code: self.world.answers.refuse("publish", request.publication_id, code),
            expected=("location_disabled", "never_fits"),
            chance=chance,
            faults=faults,
        )

    def _record_publication(self, answer: PublishResult) -> None:
        self.world.answers.record(
            "publish", answer.publication_id, answer.model_dump(mode="json"), run_id=answer.snapshot_id
        )

    def _switch(self, step: Step, chance: random.Random) -> None:
        triggers = self.world.view["trigger_state"]
        if not triggers:
            return
        row = chance.choice(triggers)
        location, target, name = row["trigger_id"].split("/", 2)
        enabled, request_id = not row["enabled"], client_id("req", chance)
        self.ask(
            f"switch {name} {enabled}",
            lambda: self.world.api.schedules.set_enabled(
                location, target, name, enabled=enabled, request_id=request_id
            ),
            lambda answer: self._record_switch(request_id, answer),
            lambda code: None,  # its trigger may be gone since
            expected=("not_found",),
            chance=chance,
            faults=step.faults,
        )

    def _record_switch(self, request_id: str, answer: TriggerView) -> None:
        self.world.answers.record("switch", request_id, answer.model_dump(mode="json"))

    def _location(self, step: Step, chance: random.Random) -> None:
        location = chance.choice(self.world.scenario.targets).location
        self._set_location(location, chance.random() < 0.5, chance, step.faults)

    def replace_and_bring_back(self, target: Target, chance: random.Random) -> None:
        """Two publications in a row: what the first removes, the second makes anew."""
        versions = len(self.world.scenario.versions[target.location, target.target])
        first = chance.randrange(versions)
        for number in (first, (first + 1) % versions, first):
            self._ask_publication(target, number, chance, ())

    def _set_location(self, location: str, disabled: bool, chance: random.Random, faults: Sequence[Fault]) -> None:
        self.world.request(
            f"location {location} disabled={disabled}",
            chance,
            faults,
            lambda: self.world.api.locations.set_disabled(location, disabled),
        )

    def _repeat(self, step: Step, chance: random.Random) -> None:
        if self._asked:
            chance.choice(self._asked[-_LATEST:]).send(chance, step.faults)

    def ask(
        self,
        name: str,
        call: Callable[[], Any],
        record: Callable[[Any], None],
        refused: Callable[[str], None],
        *,
        expected: Sequence[str],
        chance: random.Random,
        faults: Sequence[Fault],
    ) -> None:
        """Send a request that may be sent again later, with its answer compared."""

        def send(chance: random.Random, faults: Sequence[Fault]) -> None:
            self.world.request(name, chance, faults, call, answered=record, refused=refused, expected=expected)

        self._asked.append(Asked(name, send))
        send(chance, faults)


def client_id(prefix: str, chance: random.Random) -> str:
    """An id as a client makes it."""
    return f"{prefix}_{chance.getrandbits(64):016x}"
