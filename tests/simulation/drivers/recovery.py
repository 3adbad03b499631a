"""What the queues ``recovery`` and ``task-events`` start: watching boots for a whole lease, and proofs by ECS (F16)."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

from chalicelib.cloud.ports import QueueMessage
from chalicelib.entrypoints.events.records import shard_of
from chalicelib.kernel.limits import LEASE_MARGIN_SECONDS, RECOVERY_LOOK_SECONDS, RECOVERY_LOOKS_PER_LEASE
from chalicelib.runs.proving import stopped_task
from tests.simulation.board import Fault, Process
from tests.simulation.drivers.base import Act, Driver
from tests.simulation.drivers.passes import PassDriver
from tests.simulation.history import Step, draw_faults
from tests.simulation.world import World


class RecoveryDriver(Driver):
    """Event sources: each message starts an invocation at once. An extra one now and then is as good as a second message."""

    WEIGHTS: ClassVar[Mapping[str, int]] = {"recover": 2}

    def __init__(self, world: World, passes: PassDriver) -> None:
        super().__init__(world)
        self._passes = passes

    def actions(self) -> Mapping[str, Act]:
        return {"recover": self._extra}

    def on_time(self) -> None:
        if self._passes.stopped:
            return
        chance = random.Random(f"recovery {self.world.clock.elapsed_seconds()}")
        for queue, start in (("recovery", self._recover), ("task-events", self._take_event)):
            for message in self._received(queue, chance):
                start(message, random.Random(chance.getrandbits(48)))

    def _received(self, queue: str, chance: random.Random) -> Sequence[QueueMessage]:
        queues, reader = self.world.queues, Process("reader", chance)
        found: list[QueueMessage] = []
        while messages := self.world.board.as_process(reader, lambda: queues.receive(queue, wait_seconds=0)):
            found += messages
        return found

    def _extra(self, step: Step, chance: random.Random) -> None:
        self._observe(chance.randrange(self.world.scenario.shards), None, chance, step.faults)

    def _recover(self, message: QueueMessage, chance: random.Random) -> None:
        faults = () if self._passes.faultless or self.world.queues.calm else draw_faults(chance, "recovery")
        self._observe(shard_of(json.loads(message.body)), message, chance, faults)

    def _observe(
        self, shard: int, message: QueueMessage | None, chance: random.Random, faults: Sequence[Fault]
    ) -> None:
        recovery = chance.choice(self.world.machines[1:]).domains.recovery

        def recover() -> None:
            recovery.recover(shard)
            if message is not None:
                self.world.queues.delete("recovery", message.receipt)

        # between two looks it waits in short steps, for the sake of a stop that comes; here that is one wait
        observed = self.world.mutation.boot_lease_seconds + LEASE_MARGIN_SECONDS
        look = min(RECOVERY_LOOK_SECONDS, observed / RECOVERY_LOOKS_PER_LEASE)
        self.world.request(f"recovery {shard}", chance, faults, recover, may_wait=True, grain_seconds=look - 0.01)

    def _take_event(self, message: QueueMessage, chance: random.Random) -> None:
        faults = () if self._passes.faultless or self.world.queues.calm else draw_faults(chance, "event")

        def take() -> None:
            task = stopped_task(json.loads(message.body))
            if task is not None:
                self.world.api.runs.tasks_stopped([task])
            self.world.queues.delete("task-events", message.receipt)

        self.world.request("task event", chance, faults, take)
