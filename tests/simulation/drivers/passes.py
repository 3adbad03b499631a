"""What starts passes: the minute rule, extra ticks, and the reader of the dead-letter queues."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

from chalicelib.cloud.ports import QueueMessage
from chalicelib.cloud.provision import DEAD
from chalicelib.entrypoints.events.records import due_at_of, kind_of, shard_of
from chalicelib.scheduler.passing import PassResult
from tests.simulation.board import Fault, Process
from tests.simulation.drivers.base import Act, Driver
from tests.simulation.history import Step, draw_faults
from tests.simulation.world import World

MINUTE = 60.0
_TWICE = 0.1
_RUN_QUEUES = ("run-lambda", "run-container")


class PassDriver(Driver):
    """Two schedulers take turns; the minute rule starts one at every full minute, and now and then both."""

    WEIGHTS: ClassVar[Mapping[str, int]] = {"pass": 3, "dead_letter": 3}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._minute = 0
        self.stopped = False
        self.faultless = False

    def actions(self) -> Mapping[str, Act]:
        return {"pass": self._extra, "dead_letter": self._dead_letter}

    def begin(self) -> None:
        self.world.queues.losing = self.world.scenario.losing

    def on_time(self) -> None:
        """The minute rule, and the event source of the queue ``tick``; both may be stopped for a while."""
        if self.stopped:
            return
        self._read_ticks()
        minute = int(self.world.clock.elapsed_seconds() // MINUTE)
        if minute == self._minute:
            return
        self._minute = minute
        chance = random.Random(f"minute {minute} {self.world.scenario.start}")
        for _ in range(2 if not self.world.queues.calm and chance.random() < _TWICE else 1):
            self._minute_tick(f"minute {minute}", random.Random(chance.getrandbits(48)), self._faults(chance))

    def settle(self) -> None:
        for queue in _RUN_QUEUES:
            while self._read_dead(queue + DEAD, self.calm_chance(queue), ()):
                pass

    def _faults(self, chance: random.Random) -> Sequence[Fault]:
        return () if self.faultless or self.world.queues.calm else draw_faults(chance, "pass")

    @contextmanager
    def without_faults(self) -> Iterator[None]:
        """No pass is struck, and no message lost, while this is open."""
        losing, self.world.queues.losing, self.faultless = self.world.queues.losing, 0.0, True
        try:
            yield
        finally:
            self.world.queues.losing, self.faultless = losing, False

    def visit_all(self, chance: random.Random, faults: Sequence[Fault]) -> None:
        """A wake-up for every shard, whatever the hints say."""
        for shard in range(self.world.scenario.shards):
            self._visit(f"wake {shard} of all", shard, None, chance, faults)

    def _extra(self, step: Step, chance: random.Random) -> None:
        self._minute_tick("extra", chance, step.faults)

    def _minute_tick(self, name: str, chance: random.Random, faults: Sequence[Fault]) -> None:
        machine = chance.choice(self.world.machines[1:])

        def tick() -> None:
            for result in machine.domains.scheduler.minute():
                self._looked(result)

        self.world.request(f"pass {name}", chance, faults, tick, may_wait=True)

    def _read_ticks(self) -> None:
        """Each message starts an invocation of its own, at once."""
        chance = random.Random(f"ticks {self.world.clock.elapsed_seconds()}")
        reader = Process("reader", chance)
        while messages := self.world.board.as_process(reader, self._receive_tick):
            for message in messages:
                self._due_tick(message, random.Random(chance.getrandbits(48)), self._faults(chance))

    def _receive_tick(self) -> Sequence[QueueMessage]:
        return self.world.queues.receive("tick", wait_seconds=0)

    def _due_tick(self, message: QueueMessage, chance: random.Random, faults: Sequence[Fault]) -> None:
        body = json.loads(message.body)
        name = f"{body['kind']} {body['shard']} {body.get('due_at', '')}"
        self._visit(name, shard_of(body), message, chance, faults)

    def _visit(
        self, name: str, shard: int, message: QueueMessage | None, chance: random.Random, faults: Sequence[Fault]
    ) -> None:
        scheduler = chance.choice(self.world.machines[1:]).domains.scheduler
        body = json.loads(message.body) if message is not None else {}

        def visit() -> None:
            result = scheduler.visit(shard, kind_of(body), due_at_of(body))
            if message is not None:
                self.world.queues.delete("tick", message.receipt)
            self._looked(result)

        self.world.request(f"pass {name}", chance, faults, visit, may_wait=True)

    def _looked(self, result: PassResult) -> None:
        process = self.world.board.current
        # looking ahead is its last step: without it the pass was out of time, or fenced
        if result.led and process.clean and "look_ahead" in process.ran and not self.world.troubled:
            self.world.after_pass(result.shard)

    def _dead_letter(self, step: Step, chance: random.Random) -> None:
        self._read_dead(chance.choice(_RUN_QUEUES) + DEAD, chance, step.faults)

    def _read_dead(self, queue: str, chance: random.Random, faults: Sequence[Fault]) -> bool:
        found: list[str] = []

        def read() -> None:
            for message in self.world.queues.receive(queue, wait_seconds=0):
                found.append(message.body)
                self.world.api.dispatch.dead_letter(message.body)
                self.world.queues.delete(queue, message.receipt)

        self.world.request(f"read {queue}", chance, faults, read)
        return bool(found)
