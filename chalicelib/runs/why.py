"""Why a run does not go on: the words for each typed blocker, and the sentence above them (scheduler.md 7.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from .model import Blocker, ClaimView, RunView, WhyView

_CLEARS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "job_concurrency": lambda d: f"one of the {len(d['active'])} active runs of this job ends (limit {d['limit']})",
    "no_worker_capacity": lambda d: f"a worker slot is free ({d['used']} of {d['limit']} in use)",
    "pool_full": lambda d: (
        f"{d['need']} of {d['limit']} slots are free ({d['used']} in use by {', '.join(d['holders'])})"
    ),
    "pool_never_fits": lambda d: (
        f"the pool's limit is raised from {d['limit']} to at least {d['need']}, or the job needs less"
    ),
    "write_claim": lambda d: f"run {d['holder']} ({d.get('holder_state', 'active')}) ends and releases {d['relation']}",
    "write_claim_settling": lambda d: f"the settle time of run {d['holder']} is over at {d['release_after']}",
    "location_disabled": lambda _: "an administrator enables the location again",
}


def clears_when(code: str, detail: Mapping[str, Any]) -> str:
    """What would clear a blocker, in plain words."""
    return _CLEARS[code](detail)


def stored_blocker(row: Mapping[str, Any], holder_states: Mapping[str, str]) -> Blocker:
    """A blocker row with its explanation; a holding run is shown with its present state."""
    detail = dict(row["detail"])
    if "holder" in detail and detail["holder"] in holder_states:
        detail["holder_state"] = holder_states[detail["holder"]]
    return Blocker(
        code=row["code"],
        subject=row["subject"],
        detail=detail,
        since=row["since"],
        clears_when=clears_when(row["code"], detail),
    )


def concurrency_blocker(run: RunView, concurrency: int, active: Sequence[str], ahead: int) -> Blocker | None:
    """The derived blocker of a run that is behind its job's limit; not stored, so it is always true."""
    if len(active) + ahead < concurrency:
        return None
    detail = {"limit": concurrency, "active": list(active), "ahead": ahead}
    return Blocker(
        code="job_concurrency",
        subject=run.job,
        detail=detail,
        since=run.created_at,
        clears_when=clears_when("job_concurrency", detail),
    )


def explain(run: RunView, blockers: list[Blocker], now: datetime) -> WhyView:
    """The answer of ``runs why``."""
    return WhyView(
        run_id=run.run_id,
        state=run.state,
        explanation=_sentence(run, blockers, now),
        blockers=blockers,
        claim=run.claim,
    )


def _sentence(run: RunView, blockers: Sequence[Blocker], now: datetime) -> str:
    if run.state == "queued":
        waited = _age(run.created_at, now)
        if not blockers:
            return f"queued for {waited}; the next pass decides it"
        return f"queued for {waited}; it waits until " + ", and ".join(blocker.clears_when for blocker in blockers)
    if run.claim is not None and run.state in {"claimed", "running"}:
        return _active_sentence(run, run.claim, now)
    reason = f" ({run.end_reason})" if run.end_reason else ""
    return f"{run.state}{reason}; it waits for nothing"


def _active_sentence(run: RunView, claim: ClaimView, now: datetime) -> str:
    if run.cancel_requested_at is not None:
        return (
            f"{run.state}; cancel was requested {_age(run.cancel_requested_at, now)} ago and its worker is stopping it"
        )
    if run.state == "running" and run.started_at is not None:
        return f"running for {_age(run.started_at, now)} on boot {claim.boot_id}"
    if claim.accepted_at is not None:
        return f"accepted {_age(claim.accepted_at, now)} ago by boot {claim.boot_id}, which verifies the project before it starts"
    if claim.sent_at is not None:
        return f"sent to the {claim.worker_kind} queue {_age(claim.sent_at, now)} ago; no worker has accepted it yet"
    return "claimed; its message will be sent by the next pass"


def _age(since: datetime, now: datetime) -> str:
    seconds = max(0.0, (now - since).total_seconds())
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"  # noqa: PLR2004  # two minutes read better as seconds
