"""The worker's loop: open a boot, take messages while a slot is free, stop in order (scheduler.md 8.1).

One owner thread per run starts its child, lives until the child is reaped, and reports its end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from ..cloud.ports import QueueMessage
from ..kernel.clock import Clock
from ..kernel.ids import IdSource, RandomBits
from ..settings import Settings, WorkerKind
from .boot import Ground, LeaseTables, OpenBoot
from .intake import Intake, RunQueue
from .pace import Pace
from .process import Account
from .protection import NO_PROTECTION, Protection
from .server import WorkerApi
from .verification import Project, Verifier

_LOGGER = logging.getLogger("tidemill.worker")
_LOOK_SECONDS = 0.5


class WorkerCloud(LeaseTables, Protocol):
    """What a worker needs of AWS; ``cloud.aws.Aws`` has it."""

    @property
    def queues(self) -> RunQueue:
        """The run queues."""


class Worker:
    """One boot of a container worker.

    ``lambda_slots`` are slots for runs of Lambda workers, which a local stack gives to its one worker; ``protection``
    keeps the platform from taking this worker away while it has runs.
    """

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
        started_ref: str | None = None,
        lambda_slots: int = 0,
        account: Account | None = None,
        protection: Protection = NO_PROTECTION,
    ) -> None:
        self._clock = clock
        self._pace = pace or Pace()
        self._protection = protection
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        verifier = Verifier(projects, state_dir / "compile", clock, resolve_secret, account)
        ground = Ground(settings, state_dir, verifier, clock, ids, random, self._pace, account)
        self._boot = OpenBoot(ground, cloud, kind="container", started_ref=started_ref)
        self.boot_id = self._boot.boot_id
        wanted: dict[WorkerKind, int] = {"container": slots, "lambda": lambda_slots}
        self._doors = [
            _Door(self._intake_of(kind, cloud.queues, api, random), threading.Semaphore(count))
            for kind, count in wanted.items()
            if count
        ]

    def run_forever(self, stop: threading.Event) -> int:
        """Work until ``stop`` is set or the lease is lost, then end in order; the exit code (1: lease lost)."""
        self._stop = stop
        if self._boot.open(stop):
            try:
                self._serve()
            finally:
                self._drain()
                self._close()
        return 1 if self._boot.lost.is_set() else 0

    def _intake_of(self, kind: WorkerKind, queue: RunQueue, api: WorkerApi, random: RandomBits) -> Intake:
        return Intake(
            queue,
            api,
            self._boot.identity,
            random,
            kind=kind,
            wait_seconds=self._pace.queue_wait_seconds,
            foreign_seconds=self._pace.foreign_seconds,
            retry_max_seconds=self._pace.retry_max_seconds,
        )

    # --- runs

    def _serve(self) -> None:
        """Poll every queue on a thread of its own: an empty one delays no other, and a hanging one no stop."""
        for door in self._doors:
            door.thread = threading.Thread(target=self._poll, args=(door,), name="run-queue", daemon=True)
            door.thread.start()
        while not self._ending():
            self._stop.wait(_LOOK_SECONDS)

    def _poll(self, door: _Door) -> None:
        while not self._ending():
            if not door.slots.acquire(timeout=_LOOK_SECONDS):
                continue
            message = door.intake.receive(self._stop)
            if message is None or self._ending() or not self._owned(door, message):
                if message is not None:
                    door.intake.give_back(message)
                door.slots.release()

    def _owned(self, door: _Door, message: QueueMessage) -> bool:
        """Give the message an owner thread; ``False`` when the machine has no thread for it."""
        # A daemon: when the process must end, its keepers see that and end the children (S42).
        thread = threading.Thread(target=self._own, args=(door, message), name="run-owner", daemon=True)
        with self._lock:
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:
            _LOGGER.error("a message is left to another worker: %s", error)  # noqa: TRY400 - the reason is enough
            with self._lock:
                self._threads.discard(thread)
            self._stop.wait(_LOOK_SECONDS)
            return False
        return True

    def _ending(self) -> bool:
        return self._stop.is_set() or self._boot.lost.is_set()

    def _own(self, door: _Door, message: QueueMessage) -> None:
        """The owner thread of one message and, when the claim is ours, of its run."""
        try:
            session = door.intake.accept(message, self._stop)
            if session is not None:
                with self._protection.held():
                    self._boot.carry(session)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
            door.slots.release()

    # --- the end

    def _drain(self) -> None:
        """Let runs finish, then interrupt the rest; beats go on until the last one is reaped and reported."""
        _LOGGER.info("boot %s takes no more runs", self.boot_id)
        if not self._boot.lost.is_set():
            self._join(self._pace.stop_seconds)
        self._boot.request_all("interrupt")
        self._join(self._pace.graces.total_seconds + self._pace.last_call_seconds)
        self._boot.end_waits()
        self._join(self._pace.last_join_seconds)

    def _close(self) -> None:
        """Say that it stopped, now that nothing runs any more."""
        for door in self._doors:
            if door.thread is not None:
                door.thread.join(_LOOK_SECONDS)  # what it may still receive it gives back
        with self._lock:
            running = bool(self._threads)
        self._boot.close(to_prove=running or any(door.intake.uncertain for door in self._doors))
        self._protection.close()

    def _join(self, seconds: float) -> None:
        deadline = self._clock.elapsed_seconds() + seconds
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, deadline - self._clock.elapsed_seconds()))


class _Door:
    """One queue, with the slots for what comes through it, and the thread that polls it."""

    def __init__(self, intake: Intake, slots: threading.Semaphore) -> None:
        self.intake = intake
        self.slots = slots
        self.thread: threading.Thread | None = None
