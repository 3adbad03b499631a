"""Use cases of runs: each opens a transaction, decides, persists and commits; network calls come before or after."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..cloud.ports import LeaseTable, NoTasks, ObjectStore, TaskService
from ..database import Database, Transaction, Write, load_queries
from ..database.connection import json_rows
from ..kernel.errors import ClaimEnded, InvalidRequest, RunCancelled, TidemillError
from ..kernel.ids import IdSource
from ..kernel.limits import CLAIMS_RELEASED_PER_BATCH, DEADLINES_PER_BATCH
from ..kernel.paging import Page, check_limit
from ..kernel.records import Record
from ..leases import lease_is_open, partition_of, revoke, signal_cancel
from ..leases.boots import key_of
from ..leases.lowering import FindShards, HintLowering, never
from . import (
    cancelling,
    claiming,
    ending,
    explaining,
    losing,
    proving,
    queueing,
    reading,
    rerunning,
    resolving,
    working,
)
from .cancelling import CancelAnswer, Signal
from .model import (
    Accepted,
    AcceptRequest,
    CancelRequest,
    EventView,
    NodeView,
    Report,
    RerunRequest,
    ResolveRequest,
    RunDetail,
    RunInputs,
    RunRequest,
    RunView,
    StartRequest,
    WhyView,
)
from .reading import RunFilter
from .resolving import ResolveAnswer, Revocation
from .working import WorkerTokens

Result = TypeVar("Result")

QUERIES = load_queries(__package__)

_LOG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LOG_NAMES_MAX = 100


class BootEnded(Record):
    """The runs that the proof of a boot's end has ended."""

    boot_id: str
    runs: list[str]


class LogLink(Record):
    """A part of a run's log and a signed, short-lived link to it."""

    name: str
    url: str


class RunService:
    """Runs of one installation."""

    def __init__(
        self,
        database: Database,
        ids: IdSource,
        lowering: HintLowering,
        *,
        leases: LeaseTable,
        objects: ObjectStore,
        tokens: WorkerTokens,
        tasks: TaskService | None = None,
    ) -> None:
        self._database = database
        self._lowering = lowering
        self._ids = ids
        self._leases = leases
        self._objects = objects
        self._tokens = tokens
        self._tasks = tasks or NoTasks()

    # --- people

    def request(
        self, location: str, target: str, job: str, request: RunRequest, requested_by: str
    ) -> tuple[RunView, bool]:
        """Queue a run of a current job; the second part says whether this very request was made before."""

        def queue(tx: Transaction) -> tuple[RunView, bool]:
            fresh = queueing.request_run(tx, self._ids, (location, target, job), request, requested_by)
            return reading.one_run(tx, request.run_id), not fresh

        job_key = {"location": location, "target": target, "job": job}
        return self._lowering.lowered(_shards("shard_of_job", **job_key), queue)

    def cancel(self, run_id: str, request: CancelRequest, cancelled_by: str) -> CancelAnswer:
        """Cancel a run; a started one gets the signal through its worker's lease item after the commit."""
        answer, signal = self._lowering.lowered(
            _shards("shards_freed_by_run", run_id=run_id),
            lambda tx: cancelling.cancel(tx, self._ids, run_id, request, cancelled_by),
        )
        if signal is not None:
            self._send(signal)
        return answer

    def rerun(self, run_id: str, request: RerunRequest, requested_by: str) -> tuple[RunView, bool]:
        """Queue a finished run once more; the second part says whether this very request was made before."""

        def queue(tx: Transaction) -> tuple[RunView, bool]:
            fresh = rerunning.rerun(tx, self._ids, run_id, request, requested_by)
            return reading.one_run(tx, request.run_id), not fresh

        return self._lowering.lowered(lambda tx: rerunning.shards_of_rerun(tx, run_id), queue)

    def resolve(self, run_id: str, request: ResolveRequest, resolved_by: str) -> ResolveAnswer:
        """End a run that is marked lost, or free what a finished one still holds; its worker is told to stop after it."""
        suspect = self._read(lambda tx: resolving.suspect_of(tx, run_id))
        if suspect is not None:
            resolving.refuse_beating(self._leases, run_id, suspect)
        answer, revocation = self._lowering.lowered(
            _shards("shards_freed_by_run", run_id=run_id),
            lambda tx: resolving.resolve(tx, self._ids, run_id, request, resolved_by),
        )
        if revocation is not None:
            self._revoke(revocation)
        return answer

    def _revoke(self, revocation: Revocation) -> None:
        # A worker that missed it stops at its next report, which is refused; repeating the resolution sends it again.
        try:
            revoke(self._leases, revocation.boot_id, revocation.boot_partition, revocation.claim_id)
        except TidemillError:
            return

    def _send(self, signal: Signal) -> None:
        # The pass sends it again until the run ends, so a table that does not answer now loses nothing.
        try:
            signal_cancel(self._leases, signal.boot_id, signal.boot_partition, signal.run_id, signal.cancel_id)
        except TidemillError:
            return

    # --- workers

    def accept(self, run_id: str, request: AcceptRequest) -> Accepted:
        """Bind a claim to a boot that has an open lease."""
        if not lease_is_open(self._leases, request.boot_id, request.boot_partition):
            raise InvalidRequest.of_field("boot_id", "this boot has no open lease; open it before accepting")
        return self._lowering.lowered(
            _shards("shard_of_run", run_id=run_id),
            lambda tx: working.accept(tx, self._ids, self._tokens, run_id, request),
            wakes=never,
            watched_partition=request.boot_partition,
        )

    def inputs(self, run_id: str, claim_id: str) -> RunInputs:
        """What the worker must verify and build."""
        with self._database.transaction() as tx:
            return working.inputs(tx, run_id, claim_id)

    def start(self, run_id: str, claim_id: str, request: StartRequest) -> RunView:
        """Running from here on."""

        def begin(tx: Transaction) -> RunView:
            working.start(tx, self._ids, run_id, claim_id, request.boot_id)
            return reading.one_run(tx, run_id)

        return self._lowering.lowered(_shards("shard_of_run", run_id=run_id), begin, wakes=never)

    def report(self, run_id: str, claim_id: str, sent: Report) -> dict[str, Any]:
        """Take a keyed report; a terminal one that comes too late is kept as an event and refused."""
        try:
            return self._take_report(run_id, claim_id, sent)
        except (ClaimEnded, RunCancelled):
            if sent.kind == "terminal":
                self._database.write(lambda tx: working.late_report(tx, self._ids, run_id, claim_id, sent))
            raise

    def _take_report(self, run_id: str, claim_id: str, sent: Report) -> dict[str, Any]:
        def take(tx: Transaction) -> tuple[dict[str, Any], bool]:
            return working.report(tx, self._ids, run_id, claim_id, sent)

        if sent.kind == "terminal":
            return self._lowering.lowered(_shards("shards_freed_by_run", run_id=run_id), take)[0]
        answer, marked = self._database.write(take)  # it frees nothing and moves no deadline
        if marked:
            self._lowering.lowered(
                _shards("shard_of_run", run_id=run_id),
                lambda tx: losing.heard_by_report(tx, self._ids, run_id, claim_id),
                wakes=never,
            )
        return answer

    def log_uploads(self, run_id: str, names: Sequence[str]) -> dict[str, str]:
        """Presigned uploads for parts of the log."""
        if len(names) > _LOG_NAMES_MAX or not all(_LOG_NAME.fullmatch(name) for name in names):
            raise InvalidRequest.of_field(
                "names", f"at most {_LOG_NAMES_MAX} names of letters, digits, '.', '_' and '-'"
            )
        return {name: self._objects.upload_url(_log_prefix(run_id) + name) for name in names}

    def boot_ended(self, boot_id: str, location: str | None = None) -> BootEnded:
        """Settle the runs of a boot that is proved to be gone; a repeat finds nothing more to do.

        ``location`` restricts it to what the caller answers for; a boot may serve several.
        """
        ended = self._lowering.lowered(
            _shards("shards_freed_by_boot", boot_id=boot_id),
            lambda tx: ending.end_boot(tx, self._ids, boot_id, location),
        )
        self._forget_boot(boot_id)
        return BootEnded(boot_id=boot_id, runs=sorted(row["run_id"] for row in ended))

    def _forget_boot(self, boot_id: str) -> None:
        """Delete the item of a boot that is gone with its last claim; one that stays is tidied by its time to live."""
        if self._read(lambda tx: losing.carries_runs(tx, [boot_id])):
            return
        try:
            self._leases.remove(*key_of(boot_id, partition_of(boot_id)))
        except TidemillError:
            return

    def tasks_stopped(self, tasks: Sequence[str]) -> list[str]:
        """Settle the runs of ECS tasks that are proved to have stopped; the runs. A repeat finds nothing more to do."""
        if not tasks:
            return []
        ended = self._lowering.lowered(
            lambda tx: [row["shard"] for row in tx.rows(proving.PROVING["shards_freed_by_tasks"], tasks=list(tasks))],
            lambda tx: proving.end_tasks(tx, self._ids, tasks),
            wakes=bool,
        )
        return sorted(row["run_id"] for row in ended)

    def prove_stopped_tasks(self, partitions: Sequence[int]) -> list[str]:
        """Ask the container service about the tasks of marked runs, and settle those that have stopped; the runs.

        ``partitions`` are those of the boots concerned. The event of a task's end, when it comes, finds nothing more to do.
        """
        with self._database.transaction() as tx:
            marked = proving.marked_tasks(tx, partitions)
        return self.tasks_stopped(proving.stopped_among(self._tasks, marked))

    def live_boots(self) -> list[str]:
        """Boots with an accepted claim that has not ended."""
        with self._database.transaction() as tx:
            return [row["boot_id"] for row in tx.rows(QUERIES["live_boots"])]

    # --- the pass

    def claim_batch(self, write: Write, shard: int, after: claiming.Keyset) -> claiming.ClaimBatch:
        """Decide one batch of queued runs."""
        return write(lambda tx: claiming.claim_batch(tx, self._ids, shard, after))

    def keep_worker_pools(self, write: Write, limits: Mapping[str, int]) -> None:
        """Bring the implicit pools of the worker kinds to their configured limits."""
        rows = json_rows([{"pool": pool, "slot_limit": limit} for pool, limit in limits.items()])
        write(lambda tx: tx.execute(claiming.QUERIES["keep_worker_pools"], rows=rows))

    def expire_deadlines(self, write: Write, shard: int) -> int:
        """End one batch of claims past their accept or start deadline; other shards may wait for what they held."""
        return self._lowering.lowered(
            _shards("shards_waiting_beside_claimed", shard=shard),
            lambda tx: ending.expire_deadlines(tx, self._ids, shard),
            wakes=bool,
            write=write,
        )

    def release_settled(self, write: Write, shard: int) -> int:
        """Release one batch of a shard's write claims whose settle time is over."""
        return self._lowering.lowered(
            _shards("shards_waiting_beside_settled", shard=shard),
            lambda tx: tx.execute(QUERIES["release_settled"], shard=shard, batch=CLAIMS_RELEASED_PER_BATCH),
            wakes=bool,
            write=write,
        )

    def dead_letter(self, run_id: str, claim_id: str) -> list[str]:
        """The verdict on a message that no worker could take."""
        ended = self._lowering.lowered(
            _shards("shards_freed_by_run", run_id=run_id),
            lambda tx: ending.end_dead_letter(tx, self._ids, run_id, claim_id),
        )
        return [row["run_id"] for row in ended]

    def resend_cancels(self, shard: int) -> int:
        """Write the cancel signals of runs that have not ended once more."""
        with self._database.transaction() as tx:
            signals = cancelling.pending_signals(tx, shard, DEADLINES_PER_BATCH)
        for signal in signals:
            self._send(signal)
        return len(signals)

    # --- reading

    def runs(self, filters: RunFilter, limit: int | None, cursor: str | None) -> Page[RunView]:
        """Newest first."""
        return self._read(lambda tx: reading.list_runs(tx, filters, check_limit(limit), cursor))

    def run(self, run_id: str) -> RunView:
        """One run."""
        return self._read(lambda tx: reading.one_run(tx, run_id))

    def shown(self, run_id: str) -> RunDetail:
        """One run, with what was seen of its workers."""
        return self._read(lambda tx: reading.run_detail(tx, run_id))

    def nodes(self, run_id: str, limit: int | None, cursor: str | None) -> Page[NodeView]:
        """The nodes of a run."""
        return self._read(lambda tx: reading.nodes(tx, run_id, check_limit(limit), cursor))

    def events(self, run_id: str, limit: int | None, cursor: str | None) -> Page[EventView]:
        """The events of a run."""
        return self._read(lambda tx: reading.events(tx, run_id, check_limit(limit), cursor))

    def why(self, run_id: str) -> WhyView:
        """Why a run waits."""
        return self._read(lambda tx: explaining.why(tx, run_id))

    def logs(self, run_id: str) -> list[LogLink]:
        """Signed links to the parts of a run's log, in order."""
        self.run(run_id)
        keys = self._objects.keys(_log_prefix(run_id))
        return [LogLink(name=key.rpartition("/")[2], url=self._objects.download_url(key)) for key in keys]

    def _read(self, read: Callable[[Transaction], Result]) -> Result:
        with self._database.transaction() as tx:
            return read(tx)


def _shards(query: str, **parameters: object) -> FindShards:
    """The shards that a query names: those whose hint a write must lower."""
    return lambda tx: [row["shard"] for row in tx.rows(QUERIES[query], **parameters)]


def _log_prefix(run_id: str) -> str:
    return f"runs/{run_id}/logs/"
