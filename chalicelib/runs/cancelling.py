"""Cancel: the row lock decides every race, and an accepted cancel always wins (scheduler.md 10.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from ..database import Transaction, load_queries
from ..kernel.canonical import canonical_json
from ..kernel.clock import instant_text
from ..kernel.errors import AlreadyFinished
from ..kernel.ids import IdSource
from ..kernel.records import Record
from .ending import RunEnd, end_runs
from .model import CancelRequest
from .queueing import NewEvent, append_events
from .states import TERMINAL
from .working import lock_run

QUERIES = load_queries(__package__)


class CancelAnswer(Record):
    """What the cancel did; ``covered_ticks`` are occurrences that now get no run, shown so that nothing is lost silently."""

    run_id: str
    status: Literal["cancelled", "cancel_requested", "already_requested"]
    cancel_id: str
    requested_by: str
    covered_ticks: list[dict[str, str]] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Signal:
    """A cancel to be written into a boot's lease item after the commit."""

    run_id: str
    cancel_id: str
    boot_id: str
    boot_partition: int


def cancel(
    tx: Transaction, ids: IdSource, run_id: str, request: CancelRequest, cancelled_by: str
) -> tuple[CancelAnswer, Signal | None]:
    """Cancel a run that did not start at once, ask a started one to stop; the same cancel id gives the same answer (S46)."""
    run = lock_run(tx, run_id)
    if run["cancel_id"] == request.cancel_id:
        return CancelAnswer.model_validate(run["cancel_response"]), _signal(tx, run, request.cancel_id)
    if run["status"] in TERMINAL:
        raise _finished(tx, run)
    if run["cancel_requested_at"] is not None:
        first = CancelAnswer.model_validate(run["cancel_response"])
        return first.model_copy(update={"status": "already_requested"}), None
    claim = tx.row(QUERIES["live_claim"], run_id=run_id)
    if claim is None or claim["accepted_at"] is None:
        return _cancel_at_once(tx, ids, run_id, request, cancelled_by), None
    answer = CancelAnswer(
        run_id=run_id, status="cancel_requested", cancel_id=request.cancel_id, requested_by=cancelled_by
    )
    _record(tx, ids, answer, request)
    return answer, Signal(run_id, request.cancel_id, claim["boot_id"], claim["boot_partition"])


def _finished(tx: Transaction, run: Mapping[str, Any]) -> AlreadyFinished:
    """The refusal, with the retry that a person may have meant."""
    retry = tx.row(QUERIES["retry_of_run"], run_id=run["run_id"])
    facts = {"state": run["status"]} | ({"retried_by": retry["run_id"]} if retry is not None else {})
    told = f"; its retry is {retry['run_id']}, which is {retry['status']}" if retry is not None else ""
    return AlreadyFinished(f"run {run['run_id']} is already {run['status']}{told}", facts=facts)


def _cancel_at_once(
    tx: Transaction, ids: IdSource, run_id: str, request: CancelRequest, cancelled_by: str
) -> CancelAnswer:
    covered = [
        {"trigger": tick["trigger_id"], "scheduled_for": instant_text(tick["scheduled_for"])}
        for tick in tx.rows(QUERIES["covered_ticks_of_runs"], run_ids=[run_id])
    ]
    answer = CancelAnswer(
        run_id=run_id, status="cancelled", cancel_id=request.cancel_id, requested_by=cancelled_by, covered_ticks=covered
    )
    _record(tx, ids, answer, request)
    end_runs(tx, ids, [RunEnd(run_id, "cancelled")], settled=True)
    return answer


def _record(tx: Transaction, ids: IdSource, answer: CancelAnswer, request: CancelRequest) -> None:
    tx.execute(
        QUERIES["request_cancel"],
        run_id=answer.run_id,
        cancelled_by=answer.requested_by,
        cancel_id=request.cancel_id,
        response=canonical_json(answer.model_dump(mode="json")),
    )
    payload = {"requested_by": answer.requested_by, "reason": request.reason, "cancel_id": request.cancel_id}
    append_events(tx, ids, [NewEvent(answer.run_id, "cancel_requested", payload)])


def _signal(tx: Transaction, run: Mapping[str, Any], cancel_id: str) -> Signal | None:
    claim = tx.row(QUERIES["live_claim"], run_id=run["run_id"])
    if claim is None or claim["boot_id"] is None:
        return None
    return Signal(run["run_id"], cancel_id, claim["boot_id"], claim["boot_partition"])


def pending_signals(tx: Transaction, shard: int, batch: int) -> list[Signal]:
    """Cancels of runs that have not ended yet: each pass writes them again, since a signal may have been lost."""
    rows = tx.rows(QUERIES["pending_cancels"], shard=shard, batch=batch)
    return [Signal(row["run_id"], row["cancel_id"], row["boot_id"], row["boot_partition"]) for row in rows]
