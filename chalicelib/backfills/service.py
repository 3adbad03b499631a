"""Use cases of backfills: starting, looking, pausing, resuming, cancelling, and the step of the pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..database import Database, Transaction, Write, load_queries
from ..kernel.canonical import canonical_json, sha256_text
from ..kernel.errors import AlreadyFinished, IdReused, NotFound
from ..kernel.ids import IdSource
from ..kernel.paging import Page, check_limit
from ..leases.lowering import FindShards, HintLowering, never
from ..projects.bundle import JobDefinition
from ..runs.model import CancelRequest
from ..runs.service import RunService
from . import advancing, reading
from .advancing import Advanced, Keyset
from .model import BackfillPlan, BackfillRequest, BackfillView, ItemView, PlannedItem, Range, RangeRequest
from .plan import inputs_of, items_after
from .ranges import checked_range
from .reading import BackfillFilter
from .states import BackfillState, may_become

QUERIES = load_queries(__package__)


class BackfillService:
    """Backfills of one installation."""

    def __init__(self, database: Database, ids: IdSource, lowering: HintLowering, runs: RunService) -> None:
        self._database = database
        self._ids = ids
        self._lowering = lowering
        self._runs = runs

    # --- people

    def start(self, request: BackfillRequest, requested_by: str) -> tuple[BackfillView, bool]:
        """Start a backfill of a current job; the second part says whether this very request was made before.

        Every item's inputs are checked before anything is stored. Raises ``NotFound``, ``InvalidRequest``,
        ``InvalidInputs``, ``InvalidSchedule`` or ``IdReused``.
        """

        def store(tx: Transaction) -> tuple[BackfillView, bool]:
            fresh = _store(tx, request, requested_by)
            return reading.one_backfill(tx, request.backfill_id), not fresh

        key = {"location": request.location, "target": request.target, "job": request.job}
        return self._lowering.lowered(_shards("shard_of_job", **key), store, wakes=lambda answer: not answer[1])

    def plan(self, request: RangeRequest) -> BackfillPlan:
        """What a backfill would do; nothing is stored. Raises what ``start`` raises."""
        with self._database.transaction() as tx:
            found = _current_job(tx, request)
            definition = JobDefinition.model_validate(found["definition"])
            asked = checked_range(request, definition, tx.now)
        return BackfillPlan(
            job=request.job,
            snapshot_id=found["snapshot_id"],
            schedule=asked.schedule,
            timezone=asked.timezone,
            items=_planned(asked, definition, request),
        )

    def backfills(self, filters: BackfillFilter, limit: int | None, cursor: str | None) -> Page[BackfillView]:
        """Newest first."""
        with self._database.transaction() as tx:
            return reading.list_backfills(tx, filters, check_limit(limit), cursor)

    def backfill(self, backfill_id: str) -> BackfillView:
        """One backfill, and what its next item waits for."""
        with self._database.transaction() as tx:
            return reading.one_backfill(tx, backfill_id)

    def items(self, backfill_id: str, limit: int | None, cursor: str | None) -> Page[ItemView]:
        """The items that began, with their runs."""
        with self._database.transaction() as tx:
            return reading.items(tx, backfill_id, check_limit(limit), cursor)

    def pause(self, backfill_id: str) -> BackfillView:
        """No new runs; those that there are go on. A repeat changes nothing."""
        return self._change(backfill_id, "paused")

    def resume(self, backfill_id: str) -> BackfillView:
        """Go on behind the cursor. A repeat changes nothing."""
        return self._change(backfill_id, "active")

    def cancel(self, backfill_id: str, cancelled_by: str) -> BackfillView:
        """Make no more runs, then cancel those that have not ended; what has ended stays as it is.

        The first is committed before the second begins, so that nothing is made behind the cancels; a pass goes on with
        them when this is cut off. A repeat cancels what is left.
        """
        view = self._change(backfill_id, "cancelling")
        if view.state == "cancelling":
            self._cancel_runs([backfill_id], cancelled_by)
            return self._settle(backfill_id)
        return view

    # --- the pass

    def advance_batch(self, write: Write, shard: int, after: Keyset) -> Advanced:
        """Take the next step of one batch of backfills."""
        done = write(lambda tx: advancing.advance_batch(tx, self._ids, shard, after))
        self._cancel_runs(done.cancelling, "backfill")
        return done

    def _cancel_runs(self, backfill_ids: Sequence[str], cancelled_by: str) -> None:
        """Ask every run that has not ended to stop; retries that were queued meanwhile are among them."""
        if not backfill_ids:
            return
        with self._database.transaction() as tx:
            rows = tx.rows(QUERIES["unfinished_runs"], backfill_ids=list(backfill_ids))
        for row in rows:
            request = CancelRequest(cancel_id=_cancel_id(row["run_id"]), reason="its backfill was cancelled")
            try:
                self._runs.cancel(row["run_id"], request, cancelled_by)
            except AlreadyFinished:
                continue

    def _change(self, backfill_id: str, wanted: BackfillState) -> BackfillView:
        def change(tx: Transaction) -> BackfillView:
            row = tx.row(QUERIES["lock_backfill"], backfill_id=backfill_id)
            if row is None:
                raise reading.not_found(backfill_id)
            state: BackfillState = row["state"]
            if wanted == "cancelling" and state == "cancelled":
                return reading.one_backfill(tx, backfill_id)
            if not may_become(state, wanted):
                raise AlreadyFinished(f"backfill {backfill_id} is already {state}", facts={"state": state})
            if state != wanted:
                tx.execute(QUERIES["set_state"], backfill_id=backfill_id, state=wanted)
            return reading.one_backfill(tx, backfill_id)

        return self._lowering.lowered(_shards("shard_of_backfill", backfill_id=backfill_id), change)

    def _settle(self, backfill_id: str) -> BackfillView:
        """A cancelled backfill without unfinished runs has ended; else the pass ends it when they have."""

        def settle(tx: Transaction) -> BackfillView:
            row = tx.row(QUERIES["lock_backfill"], backfill_id=backfill_id)
            if row is not None and row["state"] == "cancelling" and row["unfinished"] == 0:
                tx.execute(QUERIES["set_state"], backfill_id=backfill_id, state="cancelled")
            return reading.one_backfill(tx, backfill_id)

        return self._lowering.lowered(_shards("shard_of_backfill", backfill_id=backfill_id), settle, wakes=never)


def _store(tx: Transaction, request: BackfillRequest, requested_by: str) -> bool:
    """``False`` when this very request was made before."""
    sent = request.model_dump(mode="json", by_alias=True)
    if _asked_before(tx, request.backfill_id, requested_by, sent):
        return False
    found = _current_job(tx, request)
    definition = JobDefinition.model_validate(found["definition"])
    asked = checked_range(request, definition, tx.now)
    _planned(asked, definition, request)
    stored = tx.execute(
        QUERIES["insert_backfill"],
        backfill_id=request.backfill_id,
        location=request.location,
        target=request.target,
        job=request.job,
        shard=found["shard"],
        snapshot_id=found["snapshot_id"],
        over=request.over,
        range=canonical_json(asked.to_json()),
        inputs=canonical_json(request.inputs),
        max_parallel=request.max_parallel,
        requested_by=requested_by,
        request=canonical_json(sent),
    )
    # another transaction may have stored the same id between the look and the insert
    return stored == 1 or not _asked_before(tx, request.backfill_id, requested_by, sent)


def _asked_before(tx: Transaction, backfill_id: str, requested_by: str, sent: dict[str, Any]) -> bool:
    earlier = tx.row(QUERIES["request_of_backfill"], backfill_id=backfill_id)
    if earlier is None:
        return False
    if earlier["requested_by"] == requested_by and earlier["request_json"] == sent:
        return True
    raise IdReused.of_field("backfill_id", "this id belongs to another request; make a new id")


def _current_job(tx: Transaction, request: RangeRequest) -> dict[str, Any]:
    found = tx.row(QUERIES["current_job"], location=request.location, target=request.target, job=request.job)
    if found is None:
        raise NotFound(
            f"no job {request.job!r} is published for {request.location}/{request.target}; "
            "`tidemill jobs list` shows those that are"
        )
    return found


def _planned(asked: Range, definition: JobDefinition, request: RangeRequest) -> list[PlannedItem]:
    return [
        PlannedItem(
            item=item.name,
            scheduled_for=item.at if asked.over == "occurrences" else None,
            inputs=inputs_of(asked, definition, request.inputs, item),
        )
        for item in items_after(asked, None)
    ]


def _cancel_id(run_id: str) -> str:
    """The same for every cancel of this run by its backfill, so that a repeat is one."""
    return f"can_{sha256_text('backfill ' + run_id)[:32]}"


def _shards(query: str, **parameters: object) -> FindShards:
    return lambda tx: [row["shard"] for row in tx.rows(QUERIES[query], **parameters)]
