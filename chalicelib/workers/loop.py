"""The worker's loop: open a boot, take messages while a slot is free, stop in order (scheduler.md 8.1).

One owner thread per run starts its child, lives until the child is reaped, and reports its end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..cloud.ports import LeaseTable, QueueMessage
from ..kernel.clock import Clock
from ..kernel.ids import IdSource, RandomBits
from ..kernel.limits import (
    FOREIGN_MESSAGE_SECONDS,
    INTERRUPT_GRACE_SECONDS,
    QUEUE_WAIT_SECONDS,
    REPORT_EVERY_SECONDS,
    STOP_GRACE_SECONDS,
    WORKER_CALL_SECONDS,
)
from ..leases.beats import BeatThread
from ..leases.boots import BeatAnswer, BootLease
from ..leases.machine import read_identity
from ..settings import Settings
from .execution import Execution, Workshop
from .intake import Boot, Intake, RunQueue
from .process import Graces
from .records import BootFile, settle
from .server import WorkerApi
from .session import Backoff
from .verification import Project, Verifier

_LOGGER = logging.getLogger("tidemill.worker")
_LOOK_SECONDS = 0.5


class WorkerCloud(Protocol):
    """What a worker needs of AWS; ``cloud.aws.Aws`` has it."""

    @property
    def queues(self) -> RunQueue:
        """The run queue."""

    @property
    def leases(self) -> LeaseTable:
        """The lease table, for the work."""

    def own_leases(self) -> LeaseTable:
        """The lease table over a pool of its own, for beats."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a worker waits for what, in seconds; a test makes it quick."""

    graces: Graces = field(default_factory=Graces)
    stop_seconds: float = STOP_GRACE_SECONDS
    queue_wait_seconds: int = QUEUE_WAIT_SECONDS
    report_seconds: float = REPORT_EVERY_SECONDS
    foreign_seconds: int = FOREIGN_MESSAGE_SECONDS
    last_call_seconds: float = WORKER_CALL_SECONDS


class Worker:
    """One boot of a container worker."""

    def __init__(
        self,
        settings: Settings,
        cloud: WorkerCloud,
        api: WorkerApi,
        projects: Mapping[str, Project],
        *,
        slots: int,
        state_dir: Path,
        clock: Clock,
        ids: IdSource,
        random: RandomBits,
        pace: Pace | None = None,
        resolve_secret: Callable[[str], str] | None = None,
    ) -> None:
        self._clock = clock
        self._random = random
        self._pace = pace or Pace()
        self._state_dir = state_dir
        self._slots = threading.Semaphore(slots)
        self._stop = threading.Event()
        self._lost = threading.Event()
        self._lock = threading.Lock()
        self._executions: dict[str, Execution] = {}
        self._threads: set[threading.Thread] = set()
        self._unreported = False
        identity = read_identity(state_dir, random)
        verifier = Verifier(projects, state_dir / "compile", resolve_secret)
        self.boot_id = ids.mint("boot")
        self._boot_file = BootFile(state_dir, self.boot_id, identity, verifier.locations)
        self._lease = BootLease(
            cloud.leases,
            cloud.own_leases(),
            boot_id=self.boot_id,
            owner_token=ids.mint("own"),
            identity=identity,
            kind="container",
            locations=verifier.locations,
            clock=clock,
            lease_seconds=settings.lease_seconds,
        )
        self._intake = Intake(
            cloud.queues,
            api,
            Boot(self.boot_id, self._lease.partition),
            random,
            wait_seconds=self._pace.queue_wait_seconds,
            foreign_seconds=self._pace.foreign_seconds,
        )
        self._beats = BeatThread(self._lease, self._deliver, clock=clock, beat_seconds=settings.beat_seconds)
        self._shop = Workshop(
            verifier=verifier,
            lease=self._lease,
            boot_file=self._boot_file,
            runs_folder=state_dir / "runs",
            clock=clock,
            random=random,
            must_end=threading.Event(),
            graces=self._pace.graces,
            report_seconds=self._pace.report_seconds,
        )

    def run_forever(self, stop: threading.Event) -> int:
        """Work until ``stop`` is set or the lease is lost, then end in order; the exit code (1: lease lost)."""
        self._stop = stop
        self._boot_file.open()
        if self._open_lease():
            self._beats.start()
            try:
                self._poll()
            finally:
                self._drain()
                self._close()
        return 1 if self._lost.is_set() else 0

    # --- one boot

    def _open_lease(self) -> bool:
        backoff = Backoff(self._random)
        while not self._stop.is_set():
            try:
                self._lease.open()
            except Exception as error:  # noqa: BLE001 - an outage at start is waited out
                _LOGGER.warning("the lease cannot be opened yet: %s", error)
                self._stop.wait(backoff.next_seconds())
            else:
                _LOGGER.info("boot %s is open", self.boot_id)
                return True
        settle(self._state_dir, self.boot_id)  # nothing was ever accepted under it
        return False

    def _close(self) -> None:
        self._beats.close()
        try:
            self._lease.close()
        except Exception as error:  # noqa: BLE001 - recovery deletes the item of a dead boot
            _LOGGER.warning("the lease item is not deleted: %s", error)
        with self._lock:
            to_prove = self._unreported or self._intake.uncertain or bool(self._threads)
        if not to_prove:
            settle(self._state_dir, self.boot_id)

    def _deliver(self, answer: BeatAnswer) -> None:
        """On the beat's thread: only set flags."""
        with self._lock:
            executions = list(self._executions.values())
        for execution in executions:
            if execution.run_id in answer.cancels:
                execution.request("cancel")
            if answer.lost is not None or execution.claim_id in answer.revoked_claims:
                execution.request("revoke")
        if answer.lost is not None:
            _LOGGER.error("boot %s lost its lease (%s); everything stops", self.boot_id, answer.lost)
            self._lost.set()

    # --- runs

    def _poll(self) -> None:
        while not self._ending():
            if not self._slots.acquire(timeout=_LOOK_SECONDS):
                continue
            message = self._intake.receive(self._stop)
            if message is None or self._ending():
                if message is not None:
                    self._intake.give_back(message)
                self._slots.release()
                continue
            # A daemon: when the process must end, its keepers see that and end the children (S42).
            thread = threading.Thread(target=self._own, args=(message,), name="run-owner", daemon=True)
            with self._lock:
                self._threads.add(thread)
            thread.start()

    def _ending(self) -> bool:
        return self._stop.is_set() or self._lost.is_set()

    def _own(self, message: QueueMessage) -> None:
        """The owner thread of one message and, when the claim is ours, of its run."""
        try:
            session = self._intake.accept(message, self._stop)
            if session is not None:
                self._carry(Execution(self._shop, session))
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
            self._slots.release()

    def _carry(self, execution: Execution) -> None:
        with self._lock:
            self._executions[execution.claim_id] = execution
        try:
            execution.carry()
        finally:
            with self._lock:
                del self._executions[execution.claim_id]
                self._unreported |= not execution.reported

    # --- the end

    def _drain(self) -> None:
        """Let runs finish, then interrupt the rest; beats go on until the last one is reaped and reported."""
        if not self._lost.is_set():
            self._join(self._pace.stop_seconds)
        with self._lock:
            executions = list(self._executions.values())
        for execution in executions:
            execution.request("interrupt")
        graces = self._pace.graces
        self._join(graces.interrupt_seconds + 2 * graces.terminate_seconds + self._pace.last_call_seconds)
        self._shop.must_end.set()
        self._join(INTERRUPT_GRACE_SECONDS + WORKER_CALL_SECONDS)

    def _join(self, seconds: float) -> None:
        deadline = self._clock.elapsed_seconds() + seconds
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, deadline - self._clock.elapsed_seconds()))
