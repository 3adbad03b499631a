"""Why a run does not go on: the words for each typed blocker, and the sentence above them (scheduler.md 7.2). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..kernel.clock import instant_text
from ..kernel.limits import WAITING_LONG_SECONDS
from .model import Blocker, ClaimView, Progress, RunView, WhyView
from .plan import LACKS_POOL, WORKER_POOL_PREFIX
from .proofs import lambda_bound

_AGE_IN_MINUTES_FROM = 120


@dataclass(frozen=True, slots=True)
class Named:
    """What blockers name, as it is now: runs by id and pools by name."""

    runs: Mapping[str, Mapping[str, Any]]
    pools: Mapping[str, Mapping[str, Any]]
    now: datetime


def _run(detail: Mapping[str, Any], name: str) -> str:
    """A run in words, with its present state where that is known."""
    state = detail.get(f"{name}_state")
    return f"run {detail[name]} ({state})" if state else f"run {detail[name]}"


def _capacity(detail: Mapping[str, Any]) -> str:
    return f"a worker slot is free ({detail['used']} of {detail['limit']} in use)"


def _pool_full(detail: Mapping[str, Any]) -> str:
    by = f" by {', '.join(detail['holders'])}" if detail["holders"] else ""
    return f"{detail['need']} of {detail['limit']} slots are free ({detail['used']} in use{by})"


def _never_fits(detail: Mapping[str, Any]) -> str:
    pool = detail.get("pool", "")
    if pool.startswith(WORKER_POOL_PREFIX):
        return f"the installation runs workers of the kind {pool.removeprefix(WORKER_POOL_PREFIX)!r} (limit {detail['limit']})"
    return (
        f"the pool's limit is raised from {detail['limit']} to at least {detail['need']} "
        f"(`tidemill admin pool set {pool} {detail['need']}`), or the job needs less"
    )


def _write_claim(detail: Mapping[str, Any]) -> str:
    text = f"{_run(detail, 'holder')} ends and releases {detail['relation']}"
    silent = detail.get("holder_silent_seconds")
    if silent is None:
        return text
    return (
        f"{text}; its worker has missed its beats for {_duration(silent)}, and its end must be proved or resolved first"
    )


def _settling(detail: Mapping[str, Any]) -> str:
    return f"the settle time of run {detail['holder']} is over at {detail['release_after']}"


def _held(detail: Mapping[str, Any]) -> str:
    older = _run(detail, "older")
    if "pool" in detail:
        return (
            f"{older}, which waits longer and needs {detail['older_need']} of the pool {detail['pool']}, has got them"
        )
    return f"{older}, which waits longer and writes {detail['relation']}, has had its turn"


def _job_concurrency(detail: Mapping[str, Any]) -> str:
    limit, active, ahead = detail["limit"], len(detail["active"]), detail["ahead"]
    if not active:
        return f"the {ahead} older runs of this job have had their turn (limit {limit})"
    first = f", and {ahead} older ones go first" if ahead else ""
    return f"one of the {active} active runs of this job ends (limit {limit}){first}"


_CLEARS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "job_concurrency": _job_concurrency,
    "no_worker_capacity": _capacity,
    "pool_full": _pool_full,
    "pool_never_fits": _never_fits,
    "write_claim": _write_claim,
    "write_claim_settling": _settling,
    "held_for_older_run": _held,
    "retry_backoff": lambda d: f"its wait is over at {d['not_before']}",
    "location_disabled": lambda _: "an administrator enables the location again (`tidemill admin location enable`)",
}


def clears_when(code: str, detail: Mapping[str, Any]) -> str:
    """What would clear a blocker, in plain words."""
    return _CLEARS[code](detail)


def names_of(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """The runs and the pools that blocker rows name, so that their present state can be read."""
    details = [row["detail"] for row in rows]
    runs = {detail[name] for detail in details for name in ("holder", "older") if name in detail}
    pools = {_pool_of(row) for row in rows if row["code"] in {*LACKS_POOL, "pool_never_fits"}}
    return sorted(runs), sorted(pools)


def stored_blocker(row: Mapping[str, Any], named: Named) -> Blocker:
    """A blocker row with its explanation; what it names is shown as it is now."""
    code, detail = row["code"], dict(row["detail"])
    if code in {*LACKS_POOL, "pool_never_fits"}:
        code = _refresh_pool(code, _pool_of(row), detail, named)
    for name in ("holder", "older"):
        run = named.runs.get(detail.get(name, ""))
        if run is not None:
            detail |= _state_of(name, run, named.now)
    return Blocker(
        code=code, subject=row["subject"], detail=detail, since=row["since"], clears_when=clears_when(code, detail)
    )


def _pool_of(row: Mapping[str, Any]) -> str:
    """The pool's own name: a worker kind stands in the subject without its prefix."""
    subject: str = row["subject"]
    return WORKER_POOL_PREFIX + subject if row["code"] == "no_worker_capacity" else subject


def _refresh_pool(code: str, pool: str, detail: dict[str, Any], named: Named) -> str:
    detail["pool"] = pool
    found = named.pools.get(pool)
    if found is not None:
        detail |= {"used": found["used"], "limit": found["slot_limit"], "holders": list(found["holders"])}
    return "pool_never_fits" if detail["need"] > detail["limit"] else code


def _state_of(name: str, run: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    known: dict[str, Any] = {f"{name}_state": run["status"], f"{name}_job": run["job"]}
    if run["boot_id"] is not None:
        known[f"{name}_boot"] = run["boot_id"]
    if run["heartbeat_lost_at"] is not None:
        known[f"{name}_silent_seconds"] = _seconds(run["heartbeat_lost_at"], now)
    return known


def concurrency_blocker(run: RunView, limit: Mapping[str, Any]) -> Blocker | None:
    """The derived blocker of a run that is behind its job's limit; not stored, so it is always true."""
    if not limit["behind"]:
        return None
    detail = {"limit": limit["concurrency"], "active": list(limit["active"]), "ahead": limit["ahead"]}
    return Blocker(
        code="job_concurrency",
        subject=run.job,
        detail=detail,
        since=_due_at(run),
        clears_when=clears_when("job_concurrency", detail),
    )


def backoff_blocker(run: RunView, now: datetime) -> Blocker | None:
    """The derived blocker of a run whose time has not come; nothing else is decided before that."""
    if run.not_before is None or run.not_before <= now:
        return None
    detail = {"not_before": instant_text(run.not_before), "retry_number": run.retry_number}
    return Blocker(
        code="retry_backoff",
        subject=instant_text(run.not_before),
        detail=detail,
        since=run.created_at,
        clears_when=clears_when("retry_backoff", detail),
    )


def progress(run: RunView, claim: ClaimView, busy_boots: int | None, now: datetime) -> Progress:
    """The ages of an active run."""
    return Progress(
        dispatched_seconds=_seconds_or_none(claim.sent_at, now),
        accepted_seconds=_seconds_or_none(claim.accepted_at, now),
        started_seconds=_seconds_or_none(run.started_at, now),
        silent_seconds=_seconds_or_none(run.heartbeat_lost_at, now),
        busy_boots=busy_boots,
    )


def explain(run: RunView, blockers: list[Blocker], active: Progress | None, now: datetime) -> WhyView:
    """The answer of ``runs why``."""
    return WhyView(
        run_id=run.run_id,
        state=run.state,
        explanation=_sentence(run, blockers, active, now),
        blockers=blockers,
        progress=active,
        claim=run.claim,
    )


def _sentence(run: RunView, blockers: Sequence[Blocker], active: Progress | None, now: datetime) -> str:
    if run.state == "queued":
        return _waiting_sentence(run, blockers, now)
    if run.claim is not None and active is not None:
        return _active_sentence(run, run.claim, active, now)
    reason = f" ({run.end_reason})" if run.end_reason else ""
    return f"{run.state}{reason}; it waits for nothing"


def _waiting_sentence(run: RunView, blockers: Sequence[Blocker], now: datetime) -> str:
    waited = _duration(_seconds(run.created_at, now))
    if not blockers:
        return f"queued for {waited}; the next pass decides it"
    text = f"queued for {waited}; it waits until " + ", and ".join(blocker.clears_when for blocker in blockers)
    stored = {blocker.code for blocker in blockers}
    if _seconds(_due_at(run), now) < WAITING_LONG_SECONDS or stored & {
        "job_concurrency", "retry_backoff", "location_disabled", "pool_never_fits",
    }:  # fmt: skip
        return text
    return f"{text}. It has waited long, so younger runs of its warehouse leave its relations to it"


def _active_sentence(run: RunView, claim: ClaimView, active: Progress, now: datetime) -> str:
    if run.heartbeat_lost_at is not None:
        return _silent_sentence(run, claim, run.heartbeat_lost_at, now)
    if run.cancel_requested_at is not None:
        asked = _duration(_seconds(run.cancel_requested_at, now))
        return f"{run.state}; cancel was requested {asked} ago and its worker is stopping it"
    if run.state == "running" and active.started_seconds is not None:
        return f"running for {_duration(active.started_seconds)} on boot {claim.boot_id}"
    if active.accepted_seconds is not None:
        return f"accepted {_duration(active.accepted_seconds)} ago by boot {claim.boot_id}, which verifies the project before it starts"
    if active.dispatched_seconds is not None:
        return f"sent to the {claim.worker_kind} queue {_duration(active.dispatched_seconds)} ago; no worker has accepted it yet{_boots(active)}"
    return "claimed; its message will be sent by the next pass"


def _silent_sentence(run: RunView, claim: ClaimView, lost_at: datetime, now: datetime) -> str:
    """Since when nothing is heard of its worker, and what would end it: a proof, never the silence."""
    since = f"silent since {instant_text(lost_at)} ({_duration(_seconds(lost_at, now))})"
    cancelled = "; a cancel was requested, which its worker may not have heard" if run.cancel_requested_at else ""
    if run.state == "claimed":
        return f"claimed by boot {claim.boot_id}, {since}{cancelled}; it has not started, so the next recovery ends it"
    return (
        f"running on boot {claim.boot_id}, {since}{cancelled}. It goes on when a beat or a report comes, and ends when its "
        f"process is proved to be gone: {_awaited_proof(claim)}. Where nothing can prove that, "
        f"`tidemill runs resolve {run.run_id}` ends it"
    )


def _awaited_proof(claim: ClaimView) -> str:
    if claim.worker_kind == "lambda" and claim.accepted_at is not None:
        return f"no invocation of Lambda lives beyond {instant_text(lambda_bound(claim.accepted_at))}"
    return "by its supervisor, by a later worker on the same machine, or by the container service once its task has stopped"


def _boots(active: Progress) -> str:
    if active.busy_boots is None:
        return ""
    count = active.busy_boots
    return (
        "; no container is known to work now: check that one runs"
        if not count
        else f" ({count} containers work on runs now)"
    )


def _due_at(run: RunView) -> datetime:
    return max(run.created_at, run.not_before or run.created_at)


def _seconds(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())


def _seconds_or_none(since: datetime | None, now: datetime) -> float | None:
    return None if since is None else _seconds(since, now)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _AGE_IN_MINUTES_FROM else f"{seconds / 60:.0f} min"
