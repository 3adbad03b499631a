"""One boot: its lease item, its beats, and the runs that it carries. Container workers and Lambda share it.

The beats and the children belong to one owner: closing the boot ends both (scheduler.md 8.2, S41, S42).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from ..cloud.ports import LeaseTable
from ..kernel.clock import Clock
from ..kernel.ids import IdSource, RandomBits
from ..leases.beats import BeatThread
from ..leases.boots import BeatAnswer, BootLease
from ..leases.machine import read_identity
from ..settings import Settings
from .execution import Execution, Workshop
from .intake import Boot
from .outcome import Intent
from .pace import Pace
from .process import Account
from .records import BootFile, settle
from .session import Backoff, ClaimSession
from .verification import Verifier

_LOGGER = logging.getLogger("tidemill.worker")


class LeaseTables(Protocol):
    """The lease table, twice."""

    @property
    def leases(self) -> LeaseTable:
        """The lease table, for the work."""

    def own_leases(self) -> LeaseTable:
        """The lease table over a pool of its own, for beats."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a worker process stands on, whatever the kind of its boots."""

    settings: Settings
    state_dir: Path
    verifier: Verifier
    clock: Clock
    ids: IdSource
    random: RandomBits
    pace: Pace
    account: Account | None = None


class OpenBoot:
    """One boot from ``open`` to ``close``. ``lost`` is set when the lease is no longer ours: then everything stops.

    ``seconds_left`` tells how long the platform lets the process live, where it says so.
    """

    def __init__(
        self,
        ground: Ground,
        tables: LeaseTables,
        *,
        kind: Literal["lambda", "container"],
        started_ref: str | None = None,
        seconds_left: Callable[[], float] | None = None,
    ) -> None:
        self._ground = ground
        self._lock = threading.Lock()
        self._executions: dict[str, Execution] = {}
        self._unreported = False
        self._ending: Intent | None = None
        self.lost = threading.Event()
        self.boot_id = ground.ids.mint("boot")
        identity = read_identity(ground.state_dir, ground.random)
        locations = ground.verifier.locations
        self._file = BootFile(ground.state_dir, self.boot_id, identity, locations)
        self._lease = BootLease(
            tables.leases,
            tables.own_leases(),
            boot_id=self.boot_id,
            owner_token=ground.ids.mint("own"),
            identity=identity,
            kind=kind,
            locations=locations,
            clock=ground.clock,
            lease_seconds=ground.settings.lease_seconds,
            started_ref=started_ref,
        )
        self.identity = Boot(self.boot_id, self._lease.partition, started_ref)
        self._beats = BeatThread(
            self._lease, self._deliver, clock=ground.clock, beat_seconds=ground.settings.beat_seconds
        )
        self._shop = Workshop(
            verifier=ground.verifier,
            lease=self._lease,
            boot_file=self._file,
            runs_folder=ground.state_dir / "runs",
            clock=ground.clock,
            random=ground.random,
            must_end=threading.Event(),
            graces=ground.pace.graces,
            report_seconds=ground.pace.report_seconds,
            last_join_seconds=ground.pace.last_join_seconds / 2,  # the other half is for the terminal report
            seconds_left=seconds_left,
            account=ground.account,
        )

    def open(self, stop: threading.Event) -> bool:
        """Put the lease item and begin to beat; ``False`` when ``stop`` was set before a service answered."""
        self._file.open()
        backoff = Backoff(self._ground.random)
        while not stop.is_set():
            try:
                self._lease.open()
            except Exception as error:  # noqa: BLE001 - an outage at start is waited out
                _LOGGER.warning("the lease cannot be opened yet: %s", error)
                stop.wait(backoff.next_seconds())
            else:
                _LOGGER.info("boot %s is open", self.boot_id)
                self._beats.start()
                return True
        settle(self._ground.state_dir, self.boot_id)  # nothing was ever accepted under it
        return False

    def carry(self, session: ClaimSession) -> bool:
        """Carry an accepted run to its end, on the calling thread; whether its end was reported."""
        execution = Execution(self._shop, session)
        with self._lock:
            self._executions[execution.claim_id] = execution
            ending = self._ending
        if ending is not None:
            execution.request(ending)
        try:
            execution.carry()
        finally:
            with self._lock:
                del self._executions[execution.claim_id]
                self._unreported |= not execution.reported
        return execution.reported

    def request_all(self, intent: Intent) -> None:
        """Ask every run to stop, also one that comes after this."""
        with self._lock:
            self._ending = intent
        for execution in self._carried():
            execution.request(intent)

    def start_nothing(self) -> None:
        """It is too late to start a run; what was started goes on."""
        for execution in self._carried():
            execution.request_before_start()

    def _carried(self) -> list[Execution]:
        with self._lock:
            return list(self._executions.values())

    def end_waits(self) -> None:
        """The process must end: nothing waits for an answer any more."""
        self._shop.must_end.set()

    def close(self, *, to_prove: bool = False) -> None:
        """End the beats and delete the lease item.

        ``to_prove``, or a run whose end was not taken, leaves the boot's file, so that a successor proves the end.
        """
        self._beats.close()
        try:
            self._lease.close()
        except Exception as error:  # noqa: BLE001 - recovery deletes the item of a dead boot
            _LOGGER.warning("the lease item is not deleted: %s", error)
        with self._lock:
            to_prove = to_prove or self._unreported
        if not to_prove:
            settle(self._ground.state_dir, self.boot_id)
        _LOGGER.info("boot %s is closed", self.boot_id)

    def _deliver(self, answer: BeatAnswer) -> None:
        """On the beat's thread: only set flags."""
        for execution in self._carried():
            if execution.run_id in answer.cancels:
                execution.request("cancel")
            if answer.lost is not None or execution.claim_id in answer.revoked_claims:
                execution.request("revoke")
        if answer.lost is not None:
            _LOGGER.error("boot %s lost its lease (%s); everything stops", self.boot_id, answer.lost)
            self.lost.set()
