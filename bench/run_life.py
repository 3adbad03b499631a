"""The life of many no-op runs through the real services: queue, claim, accept, start, report, release."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from chalicelib.kernel.clock import SystemClock
from chalicelib.leases.boots import BootLease
from chalicelib.leases.lowering import never
from chalicelib.leases.machine import MachineIdentity
from chalicelib.runs.model import AcceptRequest, Outcome, Report, StartRequest
from chalicelib.runs.queueing import NewRun, queue_runs
from chalicelib.runs.service import RunService
from chalicelib.schedules.model import ScheduleSpec

from .filling import LOCATION, Connection, FilledJob, fill, target_of
from .installation import Installation
from .stores_in_memory import DeliveringQueues

SHARD = 0
# What a pass puts into one transaction.
QUEUED_TOGETHER = 200
_LOOK_SECONDS = 0.2
_LONGEST_SECONDS = 1_800


@dataclass(frozen=True, slots=True)
class Load:
    """So many runs, of jobs in turn; each job writes one relation, and jobs share them."""

    runs: int
    jobs: int
    relations: int


def fill_jobs(connection: Connection, load: Load) -> None:
    """Publish the jobs; their one schedule is due in a year."""
    now = datetime.now(UTC)
    then = now - timedelta(days=1)
    spec = ScheduleSpec(f"0 0 {min(then.day, 28)} {then.month} *", "UTC")
    jobs = [FilledJob(f"job{n:04}", spec, [f"relation{n % load.relations:03}"], now) for n in range(load.jobs)]
    fill(connection, jobs)


def queue_all(installed: Installation, load: Load) -> None:
    """Queue every run as a pass queues those of schedules: by the statement for many, 200 in a transaction."""
    for first in range(0, load.runs, QUEUED_TOGETHER):
        batch = [_new_run(place, load) for place in range(first, min(first + QUEUED_TOGETHER, load.runs))]
        queue_batch = partial(queue_runs, ids=installed.ids, runs=batch)
        installed.domains.lowering.lowered(lambda _: [SHARD], queue_batch, wakes=never)


def _new_run(place: int, load: Load) -> NewRun:
    target = target_of(0)
    job, snapshot = f"job{place % load.jobs:04}", target.rjust(64, "0")
    return NewRun(f"run_bench_{place:010}", LOCATION, target, job, SHARD, snapshot, {}, "schedule")


def claim_all(installed: Installation, connection: Connection, load: Load) -> Claiming:
    """Claim every run, pass by pass; what ends runs in between, so that the next ones can be claimed, is not counted."""
    claiming = Claiming()
    while claiming.claimed < load.runs:
        began = time.perf_counter()
        result = installed.domains.scheduler.visit(SHARD, "wake")
        claiming.seconds += time.perf_counter() - began
        claiming.passes += result.passes
        claiming.claimed += len(result.claimed)
        claiming.evaluated += len(result.claimed) + result.blocked
        if not result.claimed:
            raise RuntimeError(f"a pass claimed nothing; {claiming.claimed} of {load.runs} runs were claimed before")
        for statement in _END:
            connection.execute(statement)
    return claiming


# What a terminal report does to the rows that a claim pass looks at.
_END = (
    b"UPDATE claims SET accepted_at = now(), ended_at = now(), boot_id = 'boot', boot_partition = 0 WHERE ended_at IS NULL",
    b"UPDATE runs SET status = 'succeeded', finished_at = now() WHERE status = 'claimed'",
    b"DELETE FROM write_claims",
    b"DELETE FROM slots",
)


@dataclass(slots=True)
class Claiming:
    """What the passes did: ``evaluated`` counts runs looked at, claimed or not."""

    seconds: float = 0.0
    passes: int = 0
    claimed: int = 0
    evaluated: int = 0


class Life:
    """A thread that passes when it is woken, and threads that carry claimed runs to their end as workers do."""

    def __init__(self, installed: Installation, queues: DeliveringQueues, load: Load, workers: int) -> None:
        self._installed = installed
        self._queues = queues
        self._load = load
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        self._finished = itertools.count(1)
        self._boot = _open_boot(installed)
        self.passes = 0
        self._threads = [threading.Thread(target=self._guarded, args=(self._pass_when_woken,), name="passes")]
        self._threads += [
            threading.Thread(target=self._guarded, args=(self._work,), name=f"worker-{place}")
            for place in range(workers)
        ]

    def run(self) -> float:
        """Wake the first pass, and wait until the last run has ended; the seconds that took."""
        began = time.perf_counter()
        for thread in self._threads:
            thread.start()
        self._installed.domains.scheduler.send(SHARD, "wake")
        self._over.wait(_LONGEST_SECONDS)
        seconds = time.perf_counter() - began
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise RuntimeError("a thread of the benchmark failed") from self._failures[0]
        return seconds

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told at the end
            self._failures.append(error)
            self._over.set()

    def _pass_when_woken(self) -> None:
        """All wake-ups that wait are one visit, as on AWS, where those that find the shard led say so and end."""
        while not self._over.is_set():
            if self._queues.take("tick", _LOOK_SECONDS) is None:
                continue
            while self._queues.take("tick") is not None:
                pass
            self.passes += self._installed.domains.scheduler.visit(SHARD, "wake").passes

    def _work(self) -> None:
        while not self._over.is_set():
            body = self._queues.take("run-container", _LOOK_SECONDS)
            if body is None:
                continue
            message = json.loads(body)
            carry(self._installed.domains.runs, message["run_id"], message["claim_id"], self._boot)
            if next(self._finished) == self._load.runs:
                self._over.set()


def carry(runs: RunService, run_id: str, claim_id: str, boot: BootLease) -> None:
    """What a worker tells of a run that does nothing: accepted, started, ended."""
    request = AcceptRequest(
        claim_id=claim_id, boot_id=boot.boot_id, boot_partition=boot.partition, worker_kind="container"
    )
    runs.accept(run_id, request)
    runs.start(run_id, claim_id, StartRequest(boot_id=boot.boot_id))
    outcome = Outcome(state="succeeded", summary={"tool": "command"})
    runs.report(run_id, claim_id, Report(report_key=f"{claim_id}-end", kind="terminal", outcome=outcome))


def _open_boot(installed: Installation) -> BootLease:
    identity = MachineIdentity("machine", "kernel", "namespace", 1, 1)
    lease = BootLease(
        installed.leases,
        installed.leases,
        boot_id=installed.ids.mint("boot"),
        owner_token=installed.ids.mint("own"),
        identity=identity,
        kind="container",
        locations=[LOCATION],
        clock=SystemClock(),
    )
    lease.open()
    return lease
