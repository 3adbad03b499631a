"""Resolve: a person ends what nothing else can end, and says why (scheduler.md 10.4).

Whether the worker still beats is looked up before the transaction: the recovery pass has marked the run only after it saw
the counter stand still for a whole lease, and it notes that counter. A counter that differs now has moved since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from ..cloud.ports import LeaseTable
from ..database import Transaction, load_queries
from ..kernel.canonical import canonical_json
from ..kernel.clock import instant_text
from ..kernel.errors import AlreadyFinished, InvalidRequest, NotFound, NotTerminal, StillBeating
from ..kernel.ids import IdSource
from ..kernel.records import Record
from ..leases.boots import key_of
from .ending import RunEnd, end_runs
from .model import ResolveRequest
from .queueing import NewEvent, append_events
from .states import TERMINAL, RunState

QUERIES = load_queries(__package__, "resolving.sql")


class ResolveAnswer(Record):
    """What the resolution did. ``relations`` are free from now on; ``warnings`` say what is not known."""

    run_id: str
    status: Literal["resolved"] = "resolved"
    state: RunState
    resolve_id: str
    resolved_by: str
    process_end_proved: bool
    relations: list[str]
    warnings: list[str] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Revocation:
    """A claim that its boot is told to stop working for, after the commit."""

    boot_id: str
    boot_partition: int
    claim_id: str


@dataclass(frozen=True, slots=True)
class Suspect:
    """The boot of a marked run, and its counter when it was found silent (``None``: it had no lease item then)."""

    boot_id: str
    boot_partition: int
    counter: int | None


def suspect_of(tx: Transaction, run_id: str) -> Suspect | None:
    """Whom to look at before a resolution; ``None`` when the run is not marked lost or its observation is deleted."""
    row = tx.row(QUERIES["suspect"], run_id=run_id)
    return Suspect(row["boot_id"], row["boot_partition"], row["counter"]) if row is not None else None


def refuse_beating(leases: LeaseTable, run_id: str, suspect: Suspect) -> None:
    """Raise ``StillBeating`` when the boot's counter has moved since it was found silent."""
    item = leases.get(*key_of(suspect.boot_id, suspect.boot_partition))
    if item is not None and item["counter"] != suspect.counter:
        raise StillBeating(
            f"the worker {suspect.boot_id} of run {run_id} beats again; the next recovery pass clears its mark. "
            "Stop the run with `tidemill runs cancel`"
        )


def resolve(
    tx: Transaction, ids: IdSource, run_id: str, request: ResolveRequest, resolved_by: str
) -> tuple[ResolveAnswer, Revocation | None]:
    """End a run that is marked lost, or free what a finished one still holds; the same resolve id gives the same answer.

    Raises ``NotFound``, ``StillBeating``, ``NotTerminal``, ``AlreadyFinished`` or, for a success of what never started,
    ``InvalidRequest``.
    """
    run = tx.row(QUERIES["resolvable_run"], run_id=run_id)
    if run is None:
        raise NotFound(f"no run {run_id}; `tidemill runs list` shows the newest")
    claim = tx.row(QUERIES["newest_claim"], run_id=run_id)
    if run["resolve_id"] == request.resolve_id:
        return ResolveAnswer.model_validate(run["resolve_response"]), _revocation(claim)
    held = tx.rows(QUERIES["write_claims_of_run"], run_id=run_id)
    state = run["status"] if run["status"] in TERMINAL else _end_state(run, claim, request)
    if run["status"] in TERMINAL and not held:
        raise AlreadyFinished(
            f"run {run_id} is {run['status']} and holds no relation; there is nothing to resolve",
            facts={"state": run["status"]},
        )
    proved = _is_proved(run, claim)
    answer = ResolveAnswer(
        run_id=run_id, state=state, resolve_id=request.resolve_id, resolved_by=resolved_by, process_end_proved=proved,
        relations=[row["relation"] for row in held], warnings=_warnings(run, held, request, state, proved=proved),
    )  # fmt: skip
    _record(tx, ids, answer, request)
    if run["status"] in TERMINAL:
        tx.execute(QUERIES["free_write_claims"], run_id=run_id)
    else:
        end_runs(tx, ids, [RunEnd(run_id, state, "resolved", may_retry=False)], settled=True)
    return answer, _revocation(claim)


def _end_state(run: Mapping[str, Any], claim: Mapping[str, Any] | None, request: ResolveRequest) -> RunState:
    """The state that the run ends in. After an accepted cancel request that is ``cancelled``, whatever is asked (S45)."""
    run_id = run["run_id"]
    if claim is None or claim["accepted_at"] is None:
        raise NotTerminal(
            f"no worker has run {run_id}; `tidemill runs cancel {run_id}` ends it at once",
            facts={"state": run["status"]},
        )
    if run["heartbeat_lost_at"] is None:
        raise StillBeating(
            f"the worker {claim['boot_id']} of run {run_id} was not found silent; stop the run with "
            f"`tidemill runs cancel {run_id}`, and resolve it when it is marked lost"
        )
    if run["cancel_requested_at"] is not None:
        return "cancelled"
    if run["status"] == "claimed" and request.outcome == "succeeded":
        raise InvalidRequest.of_field("outcome", "the run never started; resolve it as failed or cancelled")
    return "launch_failed" if run["status"] == "claimed" and request.outcome == "failed" else request.outcome


def _is_proved(run: Mapping[str, Any], claim: Mapping[str, Any] | None) -> bool:
    """Whether the process is known to be gone: somebody proved it, or its own worker reported the end."""
    return run["reported_outcome"] is not None or (claim is not None and claim["process_ended_at"] is not None)


def _warnings(
    run: Mapping[str, Any], held: list[dict[str, Any]], request: ResolveRequest, state: RunState, *, proved: bool
) -> list[str]:
    found = []
    if state != request.outcome:
        found.append(f"the run ends {state}, not {request.outcome}: {_why_not(run)}")
    if not proved:
        found.append(
            "the end of its process is not proved: if it still works, it may write the freed relations beside another run"
        )
    releases = [row["release_after"] for row in held if row["release_after"] is not None]
    if releases:
        found.append(f"the settle time of its relations would have lasted until {instant_text(max(releases))}")
    return found


def _why_not(run: Mapping[str, Any]) -> str:
    if run["status"] in TERMINAL:
        return "a state that was reached never changes"
    return "cancelling it was asked before" if run["cancel_requested_at"] is not None else "it never started"


def _record(tx: Transaction, ids: IdSource, answer: ResolveAnswer, request: ResolveRequest) -> None:
    tx.execute(
        QUERIES["record_resolution"],
        run_id=answer.run_id,
        resolve_id=answer.resolve_id,
        response=canonical_json(answer.model_dump(mode="json")),
    )
    payload = {
        "resolved_by": answer.resolved_by,
        "resolve_id": answer.resolve_id,
        "outcome": request.outcome,
        "reason": request.reason,
        "process_end_proved": answer.process_end_proved,
        "relations": answer.relations,
    }
    append_events(tx, ids, [NewEvent(answer.run_id, "resolved", payload)])


def _revocation(claim: Mapping[str, Any] | None) -> Revocation | None:
    if claim is None or claim["boot_id"] is None:
        return None
    return Revocation(claim["boot_id"], claim["boot_partition"], claim["claim_id"])
