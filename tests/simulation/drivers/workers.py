"""Workers: they receive, accept, verify, start, report, get signals, and die at any point (F8)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

from chalicelib.kernel.errors import TidemillError, Unavailable
from chalicelib.leases.boots import BootLease
from chalicelib.leases.machine import MachineIdentity
from chalicelib.runs.model import Accepted, AcceptRequest, NodeReport, Outcome, Report, RunInputs, StartRequest
from tests.simulation.board import Fault
from tests.simulation.drivers.base import Act, Driver
from tests.simulation.history import Step
from tests.simulation.warehouses import Writer
from tests.simulation.world import World

_IDENTITY = MachineIdentity("machine", "kernel", "pid:[1]", 1, 1)
_BOOTS = 3
# How often a worker sends its last report once more although it was answered.
_FORGETS_ANSWER = 0.15
# How often a child is still at work when its worker looks.
_GOES_ON = 0.4
_FORGOTTEN = ("claim_taken", "claim_ended", "cancelled")

WorkerKind = Literal["lambda", "container"]
TaskState = Literal["held", "accepted", "verified", "running", "ended"]


@dataclass(slots=True)
class Task:
    """One message in a worker's hands. ``calls`` counts requests, so that an answer that comes too late is dropped."""

    queue: str
    receipt: str
    run_id: str
    claim_id: str
    state: TaskState = "held"
    inputs: RunInputs | None = None
    outcome: Outcome | None = None
    signalled: bool = False
    reports: int = 0
    calls: int = 0


@dataclass(slots=True)
class Boot:
    """One start of a worker process."""

    boot_id: str
    kind: WorkerKind
    lease: BootLease
    slots: int
    tasks: list[Task] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    open: bool = False
    dead: bool = False
    proved: bool = False


class WorkerDriver(Driver):
    """A few boots of each kind; a dead one is replaced by a new one, and proved dead some time later."""

    WEIGHTS: ClassVar[Mapping[str, int]] = {"work": 60, "boot": 5, "beat": 5, "die": 5, "prove": 4, "twice": 3}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._boots: list[Boot] = []

    def actions(self) -> Mapping[str, Act]:
        return {
            "work": self._work,
            "boot": self._boot,
            "beat": self._beat_one,
            "die": self._die,
            "prove": self._prove_one,
            "twice": self._twice,
        }

    # --- steps

    def _boot(self, step: Step, chance: random.Random) -> None:
        if len(self._alive()) < _BOOTS:
            self._start_boot(chance.choice(("container", "container", "lambda")), chance, step.faults)

    def _start_boot(self, kind: WorkerKind, chance: random.Random, faults: Sequence[Fault]) -> Boot:
        boot_id = f"boot_{chance.getrandbits(64):016x}"
        lease = BootLease(
            self.world.leases,
            self.world.leases,
            boot_id=boot_id,
            owner_token=f"own_{boot_id}",
            identity=_IDENTITY,
            kind=kind,
            locations=["cafe", "shop"],
            clock=self.world.machines[0].clock,
        )
        boot = Boot(boot_id, kind, lease, slots=1 if kind == "lambda" else 2)
        self._boots.append(boot)
        self._open(boot, chance, faults)
        return boot

    def _open(self, boot: Boot, chance: random.Random, faults: Sequence[Fault]) -> None:
        def opened(_: None) -> None:
            boot.open = not boot.dead

        self.world.request(f"open {boot.boot_id}", chance, faults, boot.lease.open, answered=opened)

    def _work(self, step: Step, chance: random.Random) -> None:
        boots = self._alive()
        if not boots:
            self._boot(step, chance)
            return
        boot = chance.choice(boots)
        if not boot.open:
            self._open(boot, chance, step.faults)
        elif boot.tasks and (len(boot.tasks) >= boot.slots or chance.random() < 0.7):
            self._go_on(boot, chance.choice(boot.tasks), chance, step.faults)
        else:
            self._receive(boot)

    def _beat_one(self, step: Step, chance: random.Random) -> None:
        boots = [boot for boot in self._alive() if boot.open]
        if boots:
            self._beat(chance.choice(boots), chance, step.faults)

    def _die(self, step: Step, chance: random.Random) -> None:
        boots = self._alive()
        if boots:
            self._kill(chance.choice(boots))

    def _prove_one(self, step: Step, chance: random.Random) -> None:
        boots = [boot for boot in self._boots if boot.dead and not boot.proved]
        if boots:
            self._prove(chance.choice(boots), chance, step.faults)

    def _twice(self, step: Step, chance: random.Random) -> None:
        """The message of a run at work comes to another worker too, which goes as far with it as it is let."""
        boots = [boot for boot in self._alive() if boot.open]
        working = [(boot, task) for boot in boots for task in boot.tasks if task.state in {"verified", "running"}]
        if not working:
            return
        owner, task = chance.choice(working)
        others = [boot for boot in boots if boot is not owner and boot.kind == owner.kind]
        other = others[0] if others else self._start_boot(owner.kind, chance, ())
        again = Task(task.queue, "none", task.run_id, task.claim_id)
        other.tasks.append(again)
        for _ in range(3):
            if other.open and again in other.tasks and again.state != "running":
                self._go_on(other, again, chance, ())

    # --- calm

    def settle(self) -> None:
        for boot in self._boots:
            if boot.dead and not boot.proved:
                self._prove(boot, self.calm_chance(boot.boot_id), ())
        kinds: tuple[WorkerKind, ...] = ("container", "lambda")
        for kind in kinds:
            self._work_through(kind, self.calm_chance(kind))

    def _work_through(self, kind: WorkerKind, chance: random.Random) -> None:
        boots = [boot for boot in self._alive() if boot.kind == kind]
        for boot in boots or [self._start_boot(kind, chance, ())]:
            if not boot.open:
                self._open(boot, chance, ())
            self._beat(boot, chance, ())
            boot.slots = 1_000
            while self._receive(boot):
                pass
            for task in list(boot.tasks):
                for _ in range(10):
                    if task in boot.tasks:
                        self._go_on(boot, task, chance, ())
            boot.slots = 1 if kind == "lambda" else 2

    # --- what a worker does

    def _alive(self) -> list[Boot]:
        return [boot for boot in self._boots if not boot.dead]

    def _receive(self, boot: Boot) -> bool:
        queue = f"run-{boot.kind}"
        if len(boot.tasks) >= boot.slots:
            return False
        messages = self.world.queues.receive(queue, wait_seconds=0)
        for message in messages:
            ids = json.loads(message.body)
            self.world.trace.add("received", boot.boot_id, ids["claim_id"], message.receive_count)
            task = Task(queue, message.receipt, ids["run_id"], ids["claim_id"])
            if ids["claim_id"] in boot.known:
                self._acknowledge(
                    task
                )  # a worker remembers its claims, so that a second message starts no second child
            else:
                boot.tasks.append(task)
        return bool(messages)

    def _go_on(self, boot: Boot, task: Task, chance: random.Random, faults: Sequence[Fault]) -> None:
        steps: Mapping[TaskState, Callable[[Boot, Task, random.Random, Sequence[Fault]], None]] = {
            "held": self._accept,
            "accepted": self._verify,
            "verified": self._start,
            "running": self._run_child,
            "ended": self._report_end,
        }
        steps[task.state](boot, task, chance, faults)

    def _accept(self, boot: Boot, task: Task, chance: random.Random, faults: Sequence[Fault]) -> None:
        request = AcceptRequest(
            claim_id=task.claim_id, boot_id=boot.boot_id, boot_partition=boot.lease.partition, worker_kind=boot.kind
        )

        def accepted(_: Accepted) -> None:
            if task.claim_id in boot.known:
                boot.tasks.remove(task)
                return
            boot.known.add(task.claim_id)
            task.state = "accepted"
            self._acknowledge(task)

        self._call(
            boot, task, "accept", lambda: self.world.api.runs.accept(task.run_id, request), accepted,
            chance=chance, faults=faults, expected=(*_FORGOTTEN, "invalid_request"),
        )  # fmt: skip

    def _acknowledge(self, task: Task) -> None:
        try:
            self.world.queues.delete(task.queue, task.receipt)
        except Unavailable:
            self.world.trace.add("acknowledgement lost", task.claim_id)

    def _verify(self, boot: Boot, task: Task, chance: random.Random, faults: Sequence[Fault]) -> None:
        report = Report(report_key=f"rep_{task.claim_id}", kind="verified")

        def verify() -> RunInputs:
            inputs = self.world.api.runs.inputs(task.run_id, task.claim_id)
            self._send_report(task, report)
            return inputs

        def verified(inputs: RunInputs) -> None:
            task.inputs = inputs
            if chance.random() < 0.05:
                self._end(task, Outcome(state="launch_failed", end_reason="drift"))
            else:
                task.state = "verified"

        self._call(boot, task, "verify", verify, verified, chance=chance, faults=faults)

    def _start(self, boot: Boot, task: Task, chance: random.Random, faults: Sequence[Fault]) -> None:
        request = StartRequest(boot_id=boot.boot_id)

        def started(_: Any) -> None:
            task.state = "running"
            self._begin(boot, task)

        def refused(code: str) -> None:
            # cancelled before it started: the worker says so, unless the server knows already
            self._end(task, Outcome(state="cancelled")) if code == "cancelled" else self._drop(boot, task)

        self._call(
            boot, task, "start", lambda: self.world.api.runs.start(task.run_id, task.claim_id, request), started,
            chance=chance, faults=faults, refused=refused,
        )  # fmt: skip

    def _begin(self, boot: Boot, task: Task) -> None:
        assert task.inputs is not None
        facts = self.world.target(task.inputs.location, task.inputs.target)
        relations = {"*"} if facts.single_writer else set(task.inputs.definition.relations)
        writer = Writer(task.claim_id, boot.boot_id, task.run_id, facts.warehouse, frozenset(relations))
        self.world.warehouses.begin(writer)

    def _run_child(self, boot: Boot, task: Task, chance: random.Random, faults: Sequence[Fault]) -> None:
        if not self.world.queues.calm and chance.random() < _GOES_ON:
            return
        if chance.random() < 0.3:
            self._report_node(boot, task, chance, faults)
        elif chance.random() < 0.75:
            self.world.warehouses.end(task.claim_id, boot.boot_id)
            ended = chance.random() < 0.7
            self._end(task, Outcome(state="succeeded") if ended else Outcome(state="failed", end_reason="tool_failed"))
        else:
            self._kill_child(boot, task)
            self._end(task, Outcome(state="failed", end_reason="timed_out", settled=False))

    def _report_node(self, boot: Boot, task: Task, chance: random.Random, faults: Sequence[Fault]) -> None:
        task.reports += 1
        node = NodeReport(node=f"model.{task.reports}", status="succeeded")
        self._report(
            boot,
            task,
            Report(report_key=f"rep_{task.claim_id}_{task.reports}", kind="nodes", nodes=[node]),
            chance=chance,
            faults=faults,
        )

    def _report_end(self, boot: Boot, task: Task, chance: random.Random, faults: Sequence[Fault]) -> None:
        report = Report(report_key=f"rep_{task.claim_id}_end", kind="terminal", outcome=task.outcome)
        forgets = chance.random() < _FORGETS_ANSWER
        then = (lambda: None) if forgets else partial(self._drop, boot, task)
        self._report(boot, task, report, chance=chance, faults=faults, then=then)

    def _report(
        self,
        boot: Boot,
        task: Task,
        report: Report,
        *,
        chance: random.Random,
        faults: Sequence[Fault],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        def answered(answer: Mapping[str, Any]) -> None:
            then()

        def send() -> Mapping[str, Any]:
            return self._send_report(task, report)

        self._call(boot, task, f"report {report.kind}", send, answered, chance=chance, faults=faults)

    def _send_report(self, task: Task, report: Report) -> Mapping[str, Any]:
        """Compared where it is answered, so that an answer that is lost on the way counts too."""
        key = f"{task.claim_id} {report.report_key}"
        try:
            answer = self.world.api.runs.report(task.run_id, task.claim_id, report)
        except TidemillError as error:
            if error.code != Unavailable.code:
                self.world.answers.refuse("report", key, error.code)
            raise
        self.world.answers.record("report", key, dict(answer))
        return answer

    def _call(
        self,
        boot: Boot,
        task: Task,
        name: str,
        call: Callable[[], Any],
        answered: Callable[[Any], None],
        *,
        chance: random.Random,
        faults: Sequence[Fault],
        expected: Sequence[str] = _FORGOTTEN,
        refused: Callable[[str], None] | None = None,
    ) -> None:
        """A request of a worker, which drops its task when it is refused and forgets an answer that comes too late."""
        task.calls += 1
        number = task.calls

        def current() -> bool:
            return task.calls == number and not boot.dead and task in boot.tasks

        def take(answer: Any) -> None:
            if current():
                answered(answer)

        def give_up(code: str) -> None:
            if current():
                (refused or (lambda _: self._drop(boot, task)))(code)

        label = f"{name} {task.claim_id} {boot.boot_id}"
        self.world.request(label, chance, faults, call, answered=take, refused=give_up, expected=expected)

    def _end(self, task: Task, outcome: Outcome) -> None:
        task.state, task.outcome = "ended", outcome

    def _drop(self, boot: Boot, task: Task) -> None:
        """The server takes nothing more of this claim: the child, if there is one, is stopped."""
        boot.tasks.remove(task)
        if task.state == "running":
            self._kill_child(boot, task)
        if task.state == "held":
            self._acknowledge(task)

    def _kill_child(self, boot: Boot, task: Task) -> None:
        assert task.inputs is not None
        self.world.warehouses.kill(task.claim_id, boot.boot_id, task.inputs.settle_seconds)

    def _beat(self, boot: Boot, chance: random.Random, faults: Sequence[Fault]) -> None:
        def beaten(answer: Any) -> None:
            for task in [] if boot.dead else list(boot.tasks):
                if task.run_id in answer.cancels and task.state != "held":
                    self._stop_task(boot, task, chance)

        self.world.request(f"beat {boot.boot_id}", chance, faults, boot.lease.beat, answered=beaten)

    def _stop_task(self, boot: Boot, task: Task, chance: random.Random) -> None:
        if task.state == "ended":
            return
        settled = True
        if task.state == "running":
            settled = chance.random() < 0.7
            if settled:
                self.world.warehouses.end(task.claim_id, boot.boot_id)
            else:
                self._kill_child(boot, task)
        self._end(task, Outcome(state="cancelled", settled=settled))

    def _kill(self, boot: Boot) -> None:
        """The worker dies, and its children with it; what they asked of their warehouses may go on."""
        self.world.trace.add("dies", boot.boot_id)
        boot.dead = True
        for task in boot.tasks:
            if task.state == "running":
                self._kill_child(boot, task)

    def _prove(self, boot: Boot, chance: random.Random, faults: Sequence[Fault]) -> None:
        def proved(_: Any) -> None:
            boot.proved = True

        self.world.request(
            f"boot_ended {boot.boot_id}", chance, faults, lambda: self.world.api.runs.boot_ended(boot.boot_id),
            answered=proved,
        )  # fmt: skip
