"""Boots: worker processes, how they beat, are cut off, fall silent, die, and who can prove that they are gone (F5, F6, F8, F9)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from chalicelib.kernel.limits import BEAT_SECONDS, LAMBDA_LIFE_SECONDS
from chalicelib.leases.boots import BeatAnswer, BootLease
from chalicelib.leases.machine import MachineIdentity
from chalicelib.runs.model import Outcome, RunInputs
from tests.simulation.board import Fault, Process
from tests.simulation.clock import MachineClock
from tests.simulation.world import World

_IDENTITY = MachineIdentity("machine", "kernel", "pid:[1]", 1, 1)
_CLOCK_ERRORS = (0.0, 0.0, -3.0, 3_600.0, -3_600.0)
_BEAT_FAILS = 0.05
_ARN = "arn:aws:ecs:eu-central-1:000000000000:task/tidemill/"

WorkerKind = Literal["lambda", "container"]
TaskState = Literal["held", "accepted", "verified", "running", "ended"]
# Who can see that the process is gone: its supervisor, the container service, the longest life of a Lambda, nobody.
Proof = Literal["supervisor", "task", "bound", "none"]


@dataclass(slots=True)
class Task:
    """One message in a worker's hands. ``calls`` counts requests, so that an answer that comes too late is dropped."""

    queue: str
    receipt: str
    run_id: str
    claim_id: str
    received_at: float
    state: TaskState = "held"
    inputs: RunInputs | None = None
    outcome: Outcome | None = None
    started_at: float = 0.0
    nodes: list[str] = field(default_factory=list)
    reports: int = 0
    calls: int = 0


@dataclass(slots=True)
class Boot:
    """One start of a worker process; the times are simulated seconds until which something is the matter with it."""

    boot_id: str
    kind: WorkerKind
    lease: BootLease
    slots: int
    proof: Proof
    task_arn: str | None = None
    tasks: list[Task] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    open: bool = False
    dead: bool = False
    proved: bool = False
    beaten_at: float = 0.0
    no_table_until: float = 0.0
    no_api_until: float = 0.0
    mute_until: float = 0.0
    stuck_until: float = 0.0

    @property
    def lost_for_good(self) -> bool:
        """Whether it will never reach anybody again."""
        return math.inf in {self.no_table_until, self.no_api_until}


class Fleet:
    """All boots of one driver."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.boots: list[Boot] = []
        world.stop_work.append(self._stop_work)

    def alive(self) -> list[Boot]:
        """Boots whose process runs."""
        return [boot for boot in self.boots if not boot.dead]

    # --- the life of a boot

    def start(self, kind: WorkerKind, chance: random.Random, faults: Sequence[Fault]) -> Boot:
        """A new worker process, which opens its lease."""
        boot_id = f"boot_{chance.getrandbits(64):016x}"
        proof: Proof = "bound" if kind == "lambda" else chance.choice(("supervisor", "task", "task", "none"))
        arn = f"{_ARN}{boot_id}" if proof == "task" else None
        boot = Boot(boot_id, kind, self._lease(boot_id, kind, arn, chance), 1 if kind == "lambda" else 2, proof, arn)
        if arn is not None:
            self.world.tasks.start(arn)
        self.boots.append(boot)
        self.open(boot, chance, faults)
        return boot

    def _lease(self, boot_id: str, kind: WorkerKind, arn: str | None, chance: random.Random) -> BootLease:
        return BootLease(
            self.world.leases,
            self.world.leases,
            boot_id=boot_id,
            owner_token=f"own_{boot_id}",
            identity=_IDENTITY,
            kind=kind,
            locations=["cafe", "shop"],
            clock=MachineClock(self.world.clock, self.world.board.sleep, chance.choice(_CLOCK_ERRORS)),
            lease_seconds=self.world.mutation.boot_lease_seconds,
            started_ref=arn,
        )

    def open(self, boot: Boot, chance: random.Random, faults: Sequence[Fault]) -> None:
        """Put the lease item; it may take several attempts."""

        def opened(_: None) -> None:
            boot.open, boot.beaten_at = not boot.dead, self.world.clock.elapsed_seconds()

        self.world.request(f"open {boot.boot_id}", chance, faults, boot.lease.open, answered=opened)

    def kill(self, boot: Boot, chance: random.Random) -> None:
        """The worker dies, and its children with it; what they asked of their warehouses may go on."""
        if boot.dead:
            return
        self.world.trace.add("dies", boot.boot_id)
        boot.dead = True
        for task in boot.tasks:
            if task.state == "running":
                self.kill_child(boot, task)
        if boot.task_arn is not None:
            stop = partial(self.world.tasks.stop, boot.task_arn)
            self.world.board.as_process(Process("ecs", random.Random(chance.getrandbits(48))), stop)

    def prove(self, boot: Boot, chance: random.Random, faults: Sequence[Fault]) -> None:
        """Whoever saw a dead boot end says so, once more too."""

        def proved(_: Any) -> None:
            boot.proved = True

        if boot.task_arn is not None:
            tell = partial(self.world.tasks.tell, boot.task_arn, "STOPPED")
            self.world.board.as_process(Process("ecs", random.Random(chance.getrandbits(48))), tell)
        if boot.proof == "supervisor":
            self.world.request(
                f"boot_ended {boot.boot_id}", chance, faults, lambda: self.world.api.runs.boot_ended(boot.boot_id),
                answered=proved,
            )  # fmt: skip

    # --- as time passes

    def on_time(self) -> None:
        """Beats that are due, and invocations that have reached their longest life."""
        now = self.world.clock.elapsed_seconds()
        for boot in self.alive():
            if boot.kind == "lambda" and any(now - task.received_at >= LAMBDA_LIFE_SECONDS for task in boot.tasks):
                self.kill(boot, random.Random(f"life {boot.boot_id}"))
            elif boot.open and now - boot.beaten_at >= BEAT_SECONDS:
                boot.beaten_at = now
                chance = random.Random(f"beat {boot.boot_id} {now}")
                fails = not self.world.queues.calm and chance.random() < _BEAT_FAILS
                when: Literal["before", "after"] = "before" if chance.random() < 0.5 else "after"
                self.beat(boot, chance, (Fault(0, when, "error"),) if fails else ())

    def beat(self, boot: Boot, chance: random.Random, faults: Sequence[Fault]) -> None:
        """One beat, which may bring signals; nothing when the table cannot be reached or the beat thread hangs."""
        now = self.world.clock.elapsed_seconds()
        if now < max(boot.no_table_until, boot.mute_until):
            return

        def beaten(answer: BeatAnswer) -> None:
            if not boot.dead:
                self._obey(boot, answer, chance)

        self.world.request(f"beat {boot.boot_id}", chance, faults, boot.lease.beat, answered=beaten)

    def _obey(self, boot: Boot, answer: BeatAnswer, chance: random.Random) -> None:
        if answer.lost is not None:
            self.kill(boot, chance)
            return
        for task in list(boot.tasks):
            if task.claim_id in answer.revoked_claims:
                self.drop(boot, task)
            elif task.run_id in answer.cancels and task.state not in {"held", "ended"}:
                self._stop(boot, task, chance)

    def _stop(self, boot: Boot, task: Task, chance: random.Random) -> None:
        """A signal reaches the child: it may end well all the same, or have to be killed (F12)."""
        settled = True
        if task.state == "running":
            settled = chance.random() < 0.7
            if settled:
                self.world.warehouses.end(task.claim_id, boot.boot_id)
            else:
                self.kill_child(boot, task)
        outcomes = [Outcome(state="cancelled", settled=settled)] * 2
        if task.state == "running":
            outcomes += [Outcome(state="succeeded", settled=settled), Outcome(state="failed", settled=settled)]
        self.end(task, chance.choice(outcomes))

    # --- its work

    def end(self, task: Task, outcome: Outcome) -> None:
        """The child is gone; from here on the worker reports that."""
        task.state, task.outcome = "ended", outcome

    def drop(self, boot: Boot, task: Task) -> None:
        """The server takes nothing more of this claim: the child, if there is one, is stopped."""
        boot.tasks.remove(task)
        if task.state == "running":
            self.kill_child(boot, task)

    def kill_child(self, boot: Boot, task: Task) -> None:
        """The child is killed; its warehouse may go on for the settle time."""
        if task.inputs is None:
            raise RuntimeError("a child without inputs")
        self.world.warehouses.kill(task.claim_id, boot.boot_id, task.inputs.settle_seconds)

    def _stop_work(self, run_id: str, chance: random.Random) -> None:
        """An operator makes sure that nothing of a run works any more: its worker, and its sessions in the warehouse."""
        for boot in self.alive():
            if any(task.run_id == run_id for task in boot.tasks):
                self.kill(boot, chance)
        self.world.warehouses.stop(run_id)

    def heal(self) -> None:
        """What was only a while away comes back; what was lost for good is switched off."""
        for boot in self.alive():
            if boot.lost_for_good:
                self.kill(boot, random.Random(f"heal {boot.boot_id}"))
            boot.no_table_until = boot.no_api_until = boot.mute_until = boot.stuck_until = 0.0
