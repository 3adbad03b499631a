"""The worker's loop: open a boot, take messages while a slot is free, stop in order (scheduler.md 8.1).

One owner thread per run starts its child, lives until the child is reaped, and reports its end.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..cloud.ports import LeaseTable, QueueMessage
from ..kernel.clock import Clock
from ..kernel.errors import TidemillError
from ..kernel.ids import IdSource, RandomBits
from ..kernel.limits import (
    ACCEPT_VISIBILITY_SECONDS,
    CLAIMS_REMEMBERED,
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
from ..runs.model import Accepted, AcceptRequest
from ..settings import Settings
from .execution import Execution, Workshop
from .process import Graces
from .records import BootFile, settle
from .server import WorkerApi, verdict_of
from .session import Backoff, ClaimSession
from .verification import Project, Verifier

_LOGGER = logging.getLogger("tidemill.worker")
QUEUE = "run-container"
_LOOK_SECONDS = 0.5


class RunQueue(Protocol):
    """What a worker does with the run queue; ``cloud.ports.QueueService`` has it."""

    def receive(self, queue: str, *, wait_seconds: int, maximum: int = 1) -> Sequence[QueueMessage]:
        """Up to ``maximum`` messages."""

    def delete(self, queue: str, receipt: str) -> None:
        """Acknowledge a message."""

    def hide(self, queue: str, receipt: str, seconds: int) -> None:
        """Show a message again after ``seconds``."""


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
        self._queues = cloud.queues
        self._api = api
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
        self._known_claims: deque[str] = deque(maxlen=CLAIMS_REMEMBERED)
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
        if not self._unreported:
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

    # --- messages

    def _poll(self) -> None:
        backoff = Backoff(self._random)
        while not self._ending():
            if not self._slots.acquire(timeout=_LOOK_SECONDS):
                continue
            try:
                messages = self._queues.receive(QUEUE, wait_seconds=self._pace.queue_wait_seconds, maximum=1)
            except Exception as error:  # noqa: BLE001 - a queue that fails is asked again
                _LOGGER.warning("the queue does not answer: %s", error)
                self._stop.wait(backoff.next_seconds())
                messages = ()
            else:
                backoff = Backoff(self._random)
            if not messages:
                self._slots.release()
            for message in messages:
                self._begin(message)

    def _ending(self) -> bool:
        return self._stop.is_set() or self._lost.is_set()

    def _begin(self, message: QueueMessage) -> None:
        if self._ending():
            self._show(message, 0)
            self._slots.release()
            return
        thread = threading.Thread(target=self._own, args=(message,), name="run-owner")
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def _own(self, message: QueueMessage) -> None:
        """The owner thread of one message and, when the claim is ours, of its run."""
        try:
            named = _named(message)
            if named is None:
                _LOGGER.error("a message that is not ours to understand stays in the queue: %.200s", message.body)
            elif self._first_sight(named.claim_id):
                self._take(message, named)
            else:
                self._delete(message)  # delivered twice; the run is here already (S33)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
            self._slots.release()

    def _first_sight(self, claim_id: str) -> bool:
        with self._lock:
            if claim_id in self._known_claims:
                return False
            self._known_claims.append(claim_id)
        return True

    def _forget(self, claim_id: str) -> None:
        with self._lock:
            self._known_claims.remove(claim_id)

    def _take(self, message: QueueMessage, named: _Named) -> None:
        request = AcceptRequest(
            claim_id=named.claim_id,
            boot_id=self.boot_id,
            boot_partition=self._lease.partition,
            worker_kind="container",
        )
        accepted = self._accept(message, named, request)
        if accepted is None:
            return
        self._delete(message)
        session = ClaimSession(self._api, self._random, named.run_id, request, accepted.worker_token)
        execution = Execution(self._shop, session)
        with self._lock:
            self._executions[named.claim_id] = execution
        try:
            execution.carry()
        finally:
            with self._lock:
                del self._executions[named.claim_id]
                self._unreported |= not execution.reported

    def _accept(self, message: QueueMessage, named: _Named, request: AcceptRequest) -> Accepted | None:
        """The accepted claim, or ``None``: then the message is deleted or shown again later, as the refusal says."""
        backoff = Backoff(self._random)
        while True:
            try:
                return self._api.accept(named.run_id, request)
            except TidemillError as error:
                verdict = verdict_of(error)
                if verdict in {"claim_lost", "cancelled"}:
                    self._delete(message)
                    return None
                if verdict != "transient":
                    _LOGGER.warning("run %s is left to another worker: %s", named.run_id, error.detail)
                    self._show(message, self._pace.foreign_seconds)
                elif self._wait_to_accept(message, backoff):
                    continue
                self._forget(named.claim_id)
                return None

    def _wait_to_accept(self, message: QueueMessage, backoff: Backoff) -> bool:
        """Keep the message while the server is away; ``False`` when the worker stops first."""
        self._show(message, ACCEPT_VISIBILITY_SECONDS)
        if self._stop.wait(backoff.next_seconds()) or self._lost.is_set():
            self._show(message, 0)
            return False
        return True

    def _delete(self, message: QueueMessage) -> None:
        try:
            self._queues.delete(QUEUE, message.receipt)
        except Exception as error:  # noqa: BLE001 - a message that comes again finds the claim taken
            _LOGGER.warning("a message is not deleted: %s", error)

    def _show(self, message: QueueMessage, seconds: int) -> None:
        try:
            self._queues.hide(QUEUE, message.receipt, seconds)
        except Exception as error:  # noqa: BLE001 - it comes back by itself
            _LOGGER.warning("a message keeps its visibility: %s", error)

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


@dataclass(frozen=True, slots=True)
class _Named:
    run_id: str
    claim_id: str


def _named(message: QueueMessage) -> _Named | None:
    try:
        body = json.loads(message.body)
        return _Named(str(body["run_id"]), str(body["claim_id"])) if body["v"] == 1 else None
    except (ValueError, KeyError, TypeError):
        return None
