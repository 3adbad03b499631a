"""Workers: they receive, accept, verify, start, report, and all that can happen to a worker at any point (F6, F8, F9, F12)."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from chalicelib.kernel.errors import TidemillError, Unavailable
from chalicelib.kernel.limits import LAMBDA_LIFE_SECONDS
from chalicelib.runs.model import (
    Accepted,
    AcceptRequest,
    NodeReport,
    NodeStatus,
    Outcome,
    Report,
    RunInputs,
    StartRequest,
)
from tests.simulation.board import Fault
from tests.simulation.drivers.base import Act, Driver
from tests.simulation.drivers.boots import Boot, Fleet, Task, TaskState, WorkerKind
from tests.simulation.history import Step
from tests.simulation.scenario import RELATIONS, TIMEOUT_SECONDS, node_of
from tests.simulation.warehouses import Writer
from tests.simulation.world import World

_BOOTS = 3
# How often a worker sends its last report once more although it was answered.
_FORGETS_ANSWER = 0.15
# How often a child is still at work when its worker looks.
_GOES_ON = 0.4
# the last one: retention has removed the run since
_FORGOTTEN = ("claim_taken", "claim_ended", "cancelled", "not_found")
_AWAY_SECONDS = (20.0, 60.0, 200.0, math.inf)
# How a child ends that was not asked to: by itself, or killed, with or without an end of its statements.
_ENDS = (
    *[Outcome(state="succeeded")] * 4,
    *[Outcome(state="failed", end_reason="tool_failed")] * 2,
    *[Outcome(state="failed", end_reason="timed_out", settled=False)] * 2,
    *[Outcome(state="failed", end_reason="killed", settled=False)] * 2,
    Outcome(state="failed", end_reason="interrupted"),
)


class WorkerDriver(Driver):
    """A few boots of each kind; a dead one is replaced by a new one, and perhaps proved dead some time later."""

    WEIGHTS: ClassVar[Mapping[str, int]] = {
        "work": 60,
        "boot": 5,
        "beat": 3,
        "die": 6,
        "die_reporting": 2,
        "prove": 4,
        "twice": 3,
        "cut_off": 4,
        "mute": 4,
        "stuck": 2,
        "stopping": 1,
    }

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.fleet = Fleet(world)

    def actions(self) -> Mapping[str, Act]:
        return {
            "work": self._work,
            "boot": self._boot,
            "beat": self._beat_one,
            "die": self._die,
            "die_reporting": self._die_reporting,
            "prove": self._prove_one,
            "twice": self._twice,
            "cut_off": self._cut_off,
            "mute": self._mute,
            "stuck": self._stuck,
            "stopping": self._stopping,
        }

    def on_time(self) -> None:
        self.fleet.on_time()

    # --- steps

    def _boot(self, step: Step, chance: random.Random) -> None:
        if len(self.fleet.alive()) < _BOOTS:
            self.fleet.start(chance.choice(("container", "container", "lambda")), chance, step.faults)

    def _work(self, step: Step, chance: random.Random) -> None:
        boots = self.fleet.alive()
        if not boots:
            self._boot(step, chance)
            return
        boot = chance.choice(boots)
        if not boot.open:
            self.fleet.open(boot, chance, step.faults)
        elif boot.tasks and (len(boot.tasks) >= boot.slots or chance.random() < 0.7):
            task = chance.choice(boot.tasks)
            self.go_on(boot, task, chance, step.faults)
            for _ in range(chance.choice((0, 1, 2))):
                if task in boot.tasks and not boot.dead and task.state not in {"running", "ended"}:
                    self.go_on(boot, task, chance, ())
        else:
            self.receive(boot)

    def _beat_one(self, step: Step, chance: random.Random) -> None:
        boot = self._one(chance)
        if boot is not None:
            self.fleet.beat(boot, chance, step.faults)

    def _die(self, step: Step, chance: random.Random) -> None:
        boot = self._one(chance)
        if boot is not None:
            self.fleet.kill(boot, chance)

    def _die_reporting(self, step: Step, chance: random.Random) -> None:
        """The worker sends its last report and dies before an answer comes."""
        ending = [(boot, task) for boot in self.fleet.alive() for task in boot.tasks if task.state == "ended"]
        if ending:
            boot, task = chance.choice(ending)
            boot.dead = True
            self._report_end(boot, task, chance, step.faults)
            boot.dead = False
            self.fleet.kill(boot, chance)

    def _prove_one(self, step: Step, chance: random.Random) -> None:
        boots = [boot for boot in self.fleet.boots if boot.dead and not boot.proved]
        if boots:
            self.fleet.prove(chance.choice(boots), chance, step.faults)

    def _cut_off(self, step: Step, chance: random.Random) -> None:
        """A worker reaches the table, the API or both no more, for a while or for good; it works on."""
        boot = self._one(chance)
        if boot is None:
            return
        until = self.world.clock.elapsed_seconds() + chance.choice(_AWAY_SECONDS)
        whom = chance.choice(("table", "api", "both"))
        boot.no_table_until = until if whom != "api" else boot.no_table_until
        boot.no_api_until = until if whom != "table" else boot.no_api_until
        self.world.trace.add("cut off", boot.boot_id, whom, until)

    def _mute(self, step: Step, chance: random.Random) -> None:
        """The thread that beats hangs while the work goes on."""
        boot = self._one(chance)
        if boot is not None:
            boot.mute_until = self.world.clock.elapsed_seconds() + chance.choice((60.0, 150.0, 400.0))

    def _stuck(self, step: Step, chance: random.Random) -> None:
        """The work stands still while the beats go on."""
        boot = self._one(chance)
        if boot is not None:
            boot.stuck_until = self.world.clock.elapsed_seconds() + chance.choice((60.0, 400.0, 2_000.0))

    def _stopping(self, step: Step, chance: random.Random) -> None:
        """ECS wants a task stopped that still runs."""
        arns = [boot.task_arn for boot in self.fleet.alive() if boot.task_arn is not None]
        if arns:
            self.world.tasks.tell(chance.choice(arns), "DEACTIVATING")

    def _one(self, chance: random.Random) -> Boot | None:
        """Mostly one that works."""
        boots = [boot for boot in self.fleet.alive() if boot.open]
        busy = [boot for boot in boots if any(task.state in {"accepted", "verified", "running"} for task in boot.tasks)]
        return chance.choice(busy if busy and chance.random() < 0.8 else boots) if boots else None

    def _twice(self, step: Step, chance: random.Random) -> None:
        """The message of a run at work comes to another worker too, which goes as far with it as it is let."""
        boots = [boot for boot in self.fleet.alive() if boot.open]
        working = [(boot, task) for boot in boots for task in boot.tasks if task.state in {"verified", "running"}]
        if not working:
            return
        owner, task = chance.choice(working)
        others = [boot for boot in boots if boot is not owner and boot.kind == owner.kind]
        other = others[0] if others else self.fleet.start(owner.kind, chance, ())
        again = Task(task.queue, "none", task.run_id, task.claim_id, self.world.clock.elapsed_seconds())
        other.tasks.append(again)
        for _ in range(3):
            if other.open and again in other.tasks and again.state != "running":
                self.go_on(other, again, chance, ())

    # --- calm

    def settle(self) -> None:
        self.fleet.heal()
        for boot in self.fleet.boots:
            if boot.dead and not boot.proved and boot.proof == "supervisor":
                self.fleet.prove(boot, self.calm_chance(boot.boot_id), ())
        kinds: tuple[WorkerKind, ...] = ("container", "lambda")
        for kind in kinds:
            self._work_through(kind, self.calm_chance(kind))

    def _work_through(self, kind: WorkerKind, chance: random.Random) -> None:
        boots = [boot for boot in self.fleet.alive() if boot.kind == kind]
        for boot in boots or [self.fleet.start(kind, chance, ())]:
            if not boot.open:
                self.fleet.open(boot, chance, ())
            if not boot.open:  # its table cannot be reached; a later round tries again
                continue
            self.fleet.beat(boot, chance, ())
            boot.slots = 1_000
            while self.receive(boot):
                pass
            for task in list(boot.tasks):
                for _ in range(10):
                    if task in boot.tasks:
                        self.go_on(boot, task, chance, ())
            boot.slots = 1 if kind == "lambda" else 2

    # --- what a worker does

    def receive(self, boot: Boot) -> bool:
        """Take a message if there is room; whether there was one."""
        queue = f"run-{boot.kind}"
        if len(boot.tasks) >= boot.slots:
            return False
        messages = self.world.queues.receive(queue, wait_seconds=0)
        for message in messages:
            ids = json.loads(message.body)
            self.world.trace.add("received", boot.boot_id, ids["claim_id"], message.receive_count)
            now = self.world.clock.elapsed_seconds()
            task = Task(queue, message.receipt, ids["run_id"], ids["claim_id"], now)
            if ids["claim_id"] in boot.known:
                # a worker remembers its claims, so that a second message starts no second child
                self._acknowledge(task)
            else:
                boot.tasks.append(task)
        return bool(messages)

    def go_on(self, boot: Boot, task: Task, chance: random.Random, faults: Sequence[Fault]) -> None:
        """Take the next step of a task."""
        if self.world.clock.elapsed_seconds() < boot.stuck_until:
            return
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
            claim_id=task.claim_id,
            boot_id=boot.boot_id,
            boot_partition=boot.lease.partition,
            worker_kind=boot.kind,
            started_ref=boot.task_arn,
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
            task.inputs, task.nodes = inputs, list(inputs.selection or inputs.definition.nodes)
            if chance.random() < 0.05:
                self.fleet.end(task, Outcome(state="launch_failed", end_reason="drift"))
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
            if code == "cancelled":
                self.fleet.end(task, Outcome(state="cancelled"))
            else:
                self._drop(boot, task)

        self._call(
            boot, task, "start", lambda: self.world.api.runs.start(task.run_id, task.claim_id, request), started,
            chance=chance, faults=faults, refused=refused,
        )  # fmt: skip

    def _begin(self, boot: Boot, task: Task) -> None:
        inputs, now = _read(task), self.world.clock.elapsed_seconds()
        facts = self.world.target(inputs.location, inputs.target)
        written = {relation for relation in RELATIONS if node_of(relation) in task.nodes} | set(inputs.definition.also)
        relations = {"*"} if facts.single_writer else written & set(inputs.definition.relations)
        writer = Writer(task.claim_id, boot.boot_id, task.run_id, facts.warehouse, frozenset(relations))
        if boot.kind == "lambda":  # whatever becomes of its worker, the platform ends it
            ends = task.received_at + LAMBDA_LIFE_SECONDS
            self.world.warehouses.bound(writer, ends, facts.settle_seconds)
        task.started_at = now
        self.world.warehouses.begin(writer)

    def _run_child(self, boot: Boot, task: Task, chance: random.Random, faults: Sequence[Fault]) -> None:
        if not self.world.queues.calm and chance.random() < _GOES_ON:
            return
        if task.nodes and chance.random() < 0.4:
            self._report_node(boot, task, chance, faults)
            return
        late = self.world.clock.elapsed_seconds() - task.started_at > TIMEOUT_SECONDS
        outcome = Outcome(state="failed", end_reason="timed_out", settled=False) if late else self._drawn_end(chance)
        if outcome.settled:
            self.world.warehouses.end(task.claim_id, boot.boot_id)
        else:
            self.fleet.kill_child(boot, task)
        self.fleet.end(task, outcome)

    def _drawn_end(self, chance: random.Random) -> Outcome:
        # in calm every end is settled: what waits for settle times would need hours
        return chance.choice([end for end in _ENDS if end.settled] if self.world.queues.calm else _ENDS)

    def _report_node(self, boot: Boot, task: Task, chance: random.Random, faults: Sequence[Fault]) -> None:
        task.reports += 1
        status: NodeStatus = chance.choice(("succeeded", "succeeded", "succeeded", "warned", "failed", "skipped"))
        node = NodeReport(node=task.nodes.pop(0), status=status)
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
        self.world.answers.record("report", key, dict(answer), run_id=task.run_id)
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
        if self.world.clock.elapsed_seconds() < boot.no_api_until:
            if chance.random() < 0.5:
                return  # it does not get there
            number = -1  # it does, and its answer does not come back
        self.world.request(label, chance, faults, call, answered=take, refused=give_up, expected=expected)

    def _drop(self, boot: Boot, task: Task) -> None:
        """The server takes nothing more of this claim."""
        self.fleet.drop(boot, task)
        if task.state == "held":
            self._acknowledge(task)


def _read(task: Task) -> RunInputs:
    if task.inputs is None:
        raise RuntimeError("a child without inputs")
    return task.inputs
