"""The one door through which runs end: state, claims, slots, write claims, events, retry, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..database import Transaction, load_queries
from ..database.connection import json_rows
from ..kernel.ids import IdSource
from ..kernel.limits import ACCEPT_SECONDS, DEADLINES_PER_BATCH, START_SECONDS
from .queueing import NewEvent, NewRun, append_events, queue_runs
from .retrying import hand_over_covered, queue_retries
from .states import EndReason, RunState, sources_of

QUERIES = load_queries(__package__)


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How one run ends. ``may_retry`` is false when a person has decided, so that no policy starts it again."""

    run_id: str
    state: RunState
    end_reason: EndReason | None = None
    reported_outcome: str | None = None
    warnings: int = 0
    summary: Mapping[str, Any] = field(default_factory=dict)
    may_retry: bool = True


def end_runs(
    tx: Transaction, ids: IdSource, ends: Sequence[RunEnd], *, settled: bool, proved: bool = False
) -> list[dict[str, Any]]:
    """End those of the runs whose present state allows it (S35); returns their rows (job and shard).

    ``settled``: nothing of them can still write, so the write claims go at once, else with the settle time of the target.
    ``proved``: their processes were seen to be gone. A retry that a job's policy asks for is queued here.
    """
    if not ends:
        return []
    rows = [
        {
            "run_id": end.run_id,
            "state": end.state,
            "end_reason": end.end_reason,
            "reported_outcome": end.reported_outcome,
            "warnings": end.warnings,
            "summary": dict(end.summary),
            "sources": sources_of(end.state),
        }
        for end in ends
    ]
    ended = tx.rows(QUERIES["end_runs"], rows=json_rows(rows))
    run_ids = {row["run_id"] for row in ended}
    if run_ids:
        _release(tx, sorted(run_ids), settled=settled, proved=proved)
        _follow(tx, ids, [end for end in ends if end.run_id in run_ids])
    return ended


def _follow(tx: Transaction, ids: IdSource, ends: Sequence[RunEnd]) -> None:
    """What an end brings about: its retry or, for ticks that a run covered and that never started, another run."""
    retries = queue_retries(tx, ids, {end.run_id: end.end_reason for end in ends if end.end_reason and end.may_retry})
    _append_ends(tx, ids, ends, retries)
    never_ran = [end.run_id for end in ends if end.state == "launch_failed"]
    hand_over_covered(tx, {run_id: retries[run_id] for run_id in never_ran if run_id in retries})
    _requeue_covered(tx, ids, [run_id for run_id in never_ran if run_id not in retries])


def _release(tx: Transaction, run_ids: list[str], *, settled: bool, proved: bool) -> None:
    if not settled:
        tx.execute(QUERIES["settle_write_claims"], run_ids=run_ids)
    tx.row(QUERIES["release_ended"], run_ids=run_ids, proved=proved)
    tx.execute(QUERIES["free_slots"], run_ids=run_ids)


def _append_ends(tx: Transaction, ids: IdSource, ends: Sequence[RunEnd], retries: Mapping[str, str]) -> None:
    append_events(tx, ids, (NewEvent(end.run_id, "ended", _told(end, retries.get(end.run_id))) for end in ends))


def _told(end: RunEnd, retry: str | None) -> dict[str, Any]:
    told = {"state": end.state, "end_reason": end.end_reason, "reported": end.reported_outcome}
    return told if retry is None else told | {"retry": retry}


def _requeue_covered(tx: Transaction, ids: IdSource, launch_failed: list[str]) -> None:
    """A run that never started covered ticks: the latest of them gets a run of its own (scheduler.md 5.4)."""
    ticks = tx.rows(QUERIES["latest_covered_ticks"], run_ids=launch_failed) if launch_failed else []
    runs = [
        NewRun(
            ids.mint("run"), tick["location"], tick["target"], tick["job"], tick["shard"], tick["snapshot_id"],
            tick["inputs_json"], "schedule", trigger_id=tick["trigger_id"], scheduled_for=tick["scheduled_for"],
            selection=tick["selection"],
        )
        for tick in ticks
    ]  # fmt: skip
    if runs:
        queue_runs(tx, ids, runs)
        requested = [
            {"trigger_id": t["trigger_id"], "scheduled_for": t["scheduled_for"].isoformat(), "run_id": r.run_id}
            for t, r in zip(ticks, runs, strict=True)
        ]
        tx.execute(QUERIES["request_covered_ticks"], rows=json_rows(requested))


def expire_deadlines(tx: Transaction, ids: IdSource, shard: int) -> int:
    """End claims that were not accepted or not started in time; returns how many (at most one batch)."""
    rows = tx.rows(
        QUERIES["overdue_claims"],
        shard=shard,
        batch=DEADLINES_PER_BATCH,
        start_seconds=START_SECONDS,
        accept_lambda_seconds=ACCEPT_SECONDS["lambda"],
        accept_container_seconds=ACCEPT_SECONDS["container"],
    )
    ends = [never_started(row, "start_timeout" if row["accepted_at"] else "accept_timeout") for row in rows]
    return len(end_runs(tx, ids, ends, settled=True))


def never_started(row: Mapping[str, Any], reason: EndReason) -> RunEnd:
    """The end of a run that never started: cancelled after a cancel request (S45), else ``launch_failed``."""
    if row["cancel_requested_at"] is not None:
        return RunEnd(row["run_id"], "cancelled")
    return RunEnd(row["run_id"], "launch_failed", reason)


def end_boot(tx: Transaction, ids: IdSource, boot_id: str, location: str | None) -> list[dict[str, Any]]:
    """Settle the runs (of one location, or all) of a boot whose processes were proved to be gone (scheduler.md 7.3)."""
    return end_gone(tx, ids, tx.rows(QUERIES["runs_of_boot"], boot_id=boot_id, location=location))


def end_gone(tx: Transaction, ids: IdSource, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """End runs whose processes were proved to be gone; rows of ``run_id``, ``status`` and ``cancel_requested_at``."""
    before_start = [never_started(row, "lost_before_start") for row in rows if row["status"] == "claimed"]
    started = [_lost(row) for row in rows if row["status"] == "running"]
    ended = end_runs(tx, ids, before_start, settled=True, proved=True)
    return ended + end_runs(tx, ids, started, settled=False, proved=True)


def _lost(row: Mapping[str, Any]) -> RunEnd:
    if row["cancel_requested_at"] is not None:
        return RunEnd(row["run_id"], "cancelled")
    return RunEnd(row["run_id"], "failed", "lost")


def end_dead_letter(tx: Transaction, ids: IdSource, run_id: str, claim_id: str) -> list[dict[str, Any]]:
    """End a run whose message no worker could take; nothing when the claim was accepted or has ended."""
    row = tx.row(QUERIES["unaccepted_claim"], claim_id=claim_id, run_id=run_id)
    return end_runs(tx, ids, [never_started(row, "queue_dead")], settled=True) if row else []
