"""What a worker does to its run: accept, read inputs, start, report. Every step is safe to repeat."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from ..database import Transaction, load_queries
from ..database.connection import json_rows
from ..kernel.canonical import canonical_json, digest_of
from ..kernel.errors import ClaimEnded, ClaimTaken, InvalidRequest, NotFound, ReportKeyReused, RunCancelled
from ..kernel.ids import IdSource
from ..kernel.limits import WORKER_TOKEN_EXTRA_SECONDS
from ..projects.bundle import JobDefinition
from ..projects.command import verified_nodes
from .ending import RunEnd, end_runs
from .losing import heard_by_report
from .model import Accepted, AcceptRequest, Outcome, Report, RunInputs
from .queueing import NewEvent, append_events
from .states import STATE_OF_REASON, TERMINAL, TRANSITIONS, RunState

QUERIES = load_queries(__package__)


class WorkerTokens(Protocol):
    """Mints the token that a worker gets for one claim (``access`` has it)."""

    def mint_worker_token(
        self,
        tx: Transaction,
        *,
        run_id: str,
        claim_id: str,
        location: str,
        target: str,
        expires_at: datetime,
        first: bool = False,
    ) -> str:
        """The secret; an earlier token of the claim ends, unless this is known to be the ``first``."""


def lock_run(tx: Transaction, run_id: str) -> dict[str, Any]:
    """The run's row, locked until the transaction ends: this lock decides every race on the run."""
    row = tx.row(QUERIES["lock_run"], run_id=run_id)
    if row is None:
        raise NotFound(f"no run {run_id}")
    return row


def live_claim(tx: Transaction, run: Mapping[str, Any], claim_id: str) -> dict[str, Any]:
    """The run's claim, refused when it is another's, has ended, or the run was cancelled."""
    return _checked(run, claim_id, tx.row(QUERIES["claim_of_run"], claim_id=claim_id, run_id=run["run_id"]))


def _checked(run: Mapping[str, Any], claim_id: str, claim: dict[str, Any] | None) -> dict[str, Any]:
    if run["status"] == "cancelled":
        raise RunCancelled(f"run {run['run_id']} was cancelled")
    if claim is None or claim["ended_at"] is not None:
        raise ClaimEnded(f"claim {claim_id} of run {run['run_id']} has ended ({run['end_reason'] or run['status']})")
    return claim


def accept(tx: Transaction, ids: IdSource, tokens: WorkerTokens, run_id: str, request: AcceptRequest) -> Accepted:
    """Bind the claim to this boot; the first boot wins, and the same boot may repeat (S28, S33)."""
    run = lock_run(tx, run_id)
    claim = live_claim(tx, run, request.claim_id)
    taken = tx.row(
        QUERIES["accept_claim"],
        claim_id=request.claim_id,
        boot_id=request.boot_id,
        boot_partition=request.boot_partition,
        started_ref=request.started_ref,
    )
    if taken is None:
        raise ClaimTaken(f"claim {request.claim_id} was accepted by another worker; drop the message")
    if claim["accepted_at"] is None:
        append_events(
            tx, ids, [NewEvent(run_id, "accepted", {"boot_id": request.boot_id, "claim_id": request.claim_id})]
        )
    expires_at = tx.now + timedelta(seconds=claim["timeout_seconds"] + WORKER_TOKEN_EXTRA_SECONDS)
    where = {"run_id": run_id, "claim_id": request.claim_id, "location": run["location"], "target": run["target"]}
    token = tokens.mint_worker_token(tx, **where, expires_at=expires_at, first=claim["accepted_at"] is None)
    return Accepted(**where, job=run["job"], worker_token=token, expires_at=expires_at)


def inputs(tx: Transaction, run_id: str, claim_id: str) -> RunInputs:
    """All that the worker verifies and builds; readable only with the live, accepted claim (S27)."""
    row = tx.row(QUERIES["inputs_of_claim"], run_id=run_id, claim_id=claim_id)
    if row is None:
        live_claim(tx, lock_run(tx, run_id), claim_id)
        raise ClaimEnded(f"claim {claim_id} was not accepted")
    definition = JobDefinition.model_validate(row.pop("definition"))
    nodes = row["selection"] or list(verified_nodes(definition))
    keys = tx.rows(QUERIES["drift_keys"], snapshot_id=row["snapshot_id"], nodes=nodes)
    values = row.pop("inputs_json")
    return RunInputs(
        **row,
        inputs=values,
        inputs_hash=digest_of(values),
        definition=definition,
        drift_keys={key["node"]: key["drift_key"] for key in keys},
    )


def start(tx: Transaction, ids: IdSource, run_id: str, claim_id: str, boot_id: str) -> None:
    """Running from here on. A repeat by the same boot is answered the same; a cancelled run is refused."""
    run = lock_run(tx, run_id)
    claim = live_claim(tx, run, claim_id)
    if claim["boot_id"] != boot_id:
        raise ClaimTaken(f"claim {claim_id} was accepted by another boot")
    if run["cancel_requested_at"] is not None:
        raise RunCancelled(f"run {run_id} was cancelled before it started; report it as cancelled")
    if run["status"] == "claimed":
        tx.row(QUERIES["mark_running"], run_id=run_id)
        append_events(tx, ids, [NewEvent(run_id, "started", {"boot_id": boot_id})])


def report(tx: Transaction, ids: IdSource, run_id: str, claim_id: str, sent: Report) -> tuple[dict[str, Any], bool]:
    """Take one keyed report; the same key with the same content gives the stored answer (S37).

    The second part says whether the run was marked lost, and still is.
    """
    run = lock_run(tx, run_id)
    marked = run["heartbeat_lost_at"] is not None
    digest = digest_of(sent.model_dump(mode="json"))
    claim = tx.row(QUERIES["claim_of_report"], claim_id=claim_id, run_id=run_id, report_key=sent.report_key)
    if claim is not None and claim["digest"] is not None:
        if claim["digest"] != digest:
            raise ReportKeyReused.of_field("report_key", "this key was used with other content; use a new key")
        return dict(claim["response"]), marked
    _checked(run, claim_id, claim)
    if marked and sent.kind == "terminal":
        marked = not heard_by_report(tx, ids, run_id, claim_id)
    answer = _take_report(tx, ids, run, sent)
    tx.execute(
        QUERIES["store_report"],
        claim_id=claim_id,
        report_key=sent.report_key,
        digest=digest,
        response=canonical_json(answer),
    )
    return answer, marked


def late_report(tx: Transaction, ids: IdSource, run_id: str, claim_id: str, sent: Report) -> None:
    """Keep a terminal report that came after its claim had ended as an event, for whoever investigates."""
    known = tx.row(QUERIES["claim_of_run"], claim_id=claim_id, run_id=run_id)
    if known is not None and sent.outcome is not None:
        payload = {"claim_id": claim_id, "state": sent.outcome.state, "end_reason": sent.outcome.end_reason}
        append_events(tx, ids, [NewEvent(run_id, "late_report", payload)])


def _take_report(tx: Transaction, ids: IdSource, run: Mapping[str, Any], sent: Report) -> dict[str, Any]:
    if sent.nodes:
        tx.execute(
            QUERIES["keep_nodes"], run_id=run["run_id"], rows=json_rows([n.model_dump(mode="json") for n in sent.nodes])
        )
        append_events(
            tx,
            ids,
            (NewEvent(run["run_id"], "node_finished", {"node": n.node, "status": n.status}) for n in sent.nodes),
        )
    if sent.kind == "verified":
        append_events(tx, ids, [NewEvent(run["run_id"], "verified", {})])
    if sent.kind == "terminal":
        return {"state": _end(tx, ids, run, _required(sent.outcome))}
    return {"state": run["status"]}


def _required(outcome: Outcome | None) -> Outcome:
    if outcome is None:
        raise InvalidRequest.of_field("outcome", "a terminal report needs it")
    return outcome


def _end(tx: Transaction, ids: IdSource, run: Mapping[str, Any], outcome: Outcome) -> RunState:
    cancelled = run["cancel_requested_at"] is not None
    state: RunState = "cancelled" if cancelled else outcome.state
    if state == "cancelled" and not cancelled:
        raise InvalidRequest.of_field("outcome.state", "nobody asked to cancel this run; report how it ended")
    if state not in TRANSITIONS[run["status"]] or state not in TERMINAL:
        raise InvalidRequest.of_field("outcome.state", f"a {run['status']} run cannot end {state}")
    if outcome.end_reason is not None and STATE_OF_REASON.get(outcome.end_reason) != outcome.state:
        raise InvalidRequest.of_field("outcome.end_reason", f"{outcome.end_reason} is no reason to end {outcome.state}")
    summary = {**outcome.summary, "error_code": outcome.error_code, "message": outcome.message}
    end = RunEnd(
        run["run_id"],
        state,
        None if cancelled else outcome.end_reason,
        outcome.state,
        outcome.warnings,
        {name: value for name, value in summary.items() if value is not None},
    )
    end_runs(tx, ids, [end], settled=outcome.settled)
    return state
