"""The claim pass: one batch is one transaction and a bounded number of statements (scheduler.md 7.2).

Start reading at ``claim_batch``: it finds the candidates of a shard, window by window, and hands them to ``admit``, which
decides any queued runs whose rows the caller has locked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ..database import Transaction, load_queries
from ..database.connection import Row, json_rows
from ..kernel.ids import IdSource
from ..kernel.limits import (
    BLOCKERS_PER_RUN,
    CANDIDATES_PER_WINDOW,
    CLAIM_TRIES,
    CLAIMS_PER_BATCH,
    HOLDING_RUNS_PER_TARGET,
    POOL_HOLDERS_NAMED,
    WAITING_LONG_SECONDS,
)
from .plan import (
    WORKER_POOL_PREFIX,
    Admission,
    Age,
    BlockerFact,
    Candidate,
    Holder,
    JobKey,
    PoolUse,
    RelationKey,
    Standing,
    Waiter,
    plan_admission,
    relation_fact,
    wanted_relations,
)
from .queueing import NewEvent, append_events

QUERIES = load_queries(__package__, "claiming.sql")
_OF_RUNS = load_queries(__package__)


@dataclass(frozen=True, slots=True)
class Keyset:
    """Where a pass stands: behind ``after``, with the keys that were read ahead. It visits each run at most once."""

    after: Age
    ahead: tuple[Age, ...] = field(default=(), repr=False)
    more: bool = True


BEFORE_ALL = Keyset((datetime(1, 1, 1, tzinfo=UTC), ""))


@dataclass(frozen=True, slots=True)
class ClaimBatch:
    """What one batch did: ``claimed`` maps run to claim, ``blocked`` counts those that go on waiting.

    ``last`` is where the next batch goes on, ``None`` when this was the last one of the pass.
    """

    claimed: Mapping[str, str]
    blocked: int
    last: Keyset | None = None


def claim_batch(tx: Transaction, ids: IdSource, shard: int, after: Keyset) -> ClaimBatch:
    """Decide up to 50 queued runs of a shard behind the keyset ``after``.

    Only the shard's leader calls this: two batches of one shard at once could exceed a job's concurrency when runs
    commit out of order.
    """
    keys, more = (after.ahead, after.more) if after.ahead else _window(tx, shard, after)
    batch, ahead = keys[:CLAIMS_PER_BATCH], keys[CLAIMS_PER_BATCH:]
    if not batch:
        return ClaimBatch({}, 0)
    decided = admit(tx, ids, candidates_of_runs(tx, [run_id for _, run_id in batch]))
    last = Keyset(batch[-1], ahead, more) if ahead or more else None
    return ClaimBatch(decided.claimed, decided.blocked, last)


def _window(tx: Transaction, shard: int, after: Keyset) -> tuple[tuple[Age, ...], bool]:
    created_at, run_id = after.after
    rows = tx.rows(
        QUERIES["candidate_keys"], shard=shard, after_at=created_at, after_run=run_id, most=CANDIDATES_PER_WINDOW
    )
    return tuple((row["created_at"], row["run_id"]) for row in rows), len(rows) == CANDIDATES_PER_WINDOW


def candidates_of_runs(tx: Transaction, run_ids: Sequence[str]) -> list[Row]:
    """The rows that ``admit`` takes, locked and oldest first; runs that no longer wait or are not due are left out."""
    return tx.rows(QUERIES["candidates_of_runs"], run_ids=list(run_ids))


def admit(tx: Transaction, ids: IdSource, rows: Sequence[Row]) -> ClaimBatch:
    """Decide the queued runs of ``rows`` and write the decision; all or nothing for each (S29, S31, S32).

    The pools of the batch are locked until the commit, so two batches never fill one pool twice. Whoever loses a
    relation to a batch that shares no pool is planned anew.
    """
    if not rows:
        return ClaimBatch({}, 0)
    candidates = [_candidate(row) for row in rows]
    admission = _decide(tx, candidates)
    claimed = _record_granted(tx, ids, admission.granted)
    _record_blocked(tx, admission.blocked)
    return ClaimBatch(claimed, len(admission.blocked))


def _candidate(row: Mapping[str, Any]) -> Candidate:
    return Candidate(
        run_id=row["run_id"],
        job=(row["location"], row["target"], row["job"]),
        concurrency=row["concurrency"],
        worker_kind=row["worker_kind"],
        location_disabled=row["location_disabled"],
        warehouse=row["warehouse"],
        age=(row["created_at"], row["run_id"]),
        due_at=row["due_at"],
        pools=_pools_of(row),
        relations=wanted_relations(row["warehouse"], row["relations"], single_writer=row["single_writer"]),
    )


def _pools_of(row: Mapping[str, Any]) -> dict[str, int]:
    pools = Counter({WORKER_POOL_PREFIX + row["worker_kind"]: 1})
    pools.update({pool["name"]: pool["weight"] for pool in row["pools"]})
    return dict(pools)


# ---------------------------------------------------------------------- deciding


def _decide(tx: Transaction, candidates: Sequence[Candidate]) -> Admission:
    """Plan, take the relations; plan again when another batch has taken one since the holders were read."""
    pools = _lock_pools(tx, candidates)
    active, waiters = _active(tx, candidates), _waiters(tx, candidates)
    long_before = tx.now - timedelta(seconds=WAITING_LONG_SECONDS)
    for _ in range(CLAIM_TRIES):
        standing = Standing(active, pools, _holders(tx, candidates), waiters, long_before)
        admission = plan_admission(candidates, standing)
        short = _take(tx, admission.granted)
        if not short:
            return admission
        tx.execute(QUERIES["drop_write_claims"], run_ids=[candidate.run_id for candidate in admission.granted])
    return _grant_nothing(tx, candidates, admission)


def _lock_pools(tx: Transaction, candidates: Sequence[Candidate]) -> dict[str, PoolUse]:
    names = sorted({name for candidate in candidates for name in candidate.pools})
    limits = {row["pool"]: row["slot_limit"] for row in tx.rows(QUERIES["lock_pools"], pools=names)}
    use = {row["pool"]: row for row in tx.rows(QUERIES["pool_use"], pools=names, holders=POOL_HOLDERS_NAMED)}
    return {
        name: PoolUse(limit, use[name]["used"], use[name]["holders"]) if name in use else PoolUse(limit, 0)
        for name, limit in limits.items()
    }


def _active(tx: Transaction, candidates: Sequence[Candidate]) -> dict[JobKey, int]:
    keys = sorted({candidate.job for candidate in candidates})
    jobs = json_rows([{"location": key[0], "target": key[1], "job": key[2]} for key in keys])
    rows = tx.rows(QUERIES["active_of_jobs"], jobs=jobs)
    return {(row["location"], row["target"], row["job"]): row["active"] for row in rows}


def _holders(tx: Transaction, candidates: Iterable[Candidate]) -> dict[RelationKey, Holder]:
    keys = sorted({key for candidate in candidates for key in candidate.relations})
    rows = tx.rows(QUERIES["holders"], keys=json_rows([{"warehouse": w, "relation": r} for w, r in keys]))
    return {(row["warehouse"], row["relation"]): Holder(row["run_id"], row["release_after"]) for row in rows}


def _waiters(tx: Transaction, candidates: Sequence[Candidate]) -> list[Waiter]:
    """Old waiting runs outside the batch: those of other batches and other shards."""
    rows = tx.rows(
        QUERIES["waiting_long"],
        warehouses=sorted({candidate.warehouse for candidate in candidates}),
        run_ids=[candidate.run_id for candidate in candidates],
        long_before=tx.now - timedelta(seconds=WAITING_LONG_SECONDS),
        most=HOLDING_RUNS_PER_TARGET,
    )
    return [_waiter(row) for row in rows]


def _waiter(row: Mapping[str, Any]) -> Waiter:
    relations = wanted_relations(row["warehouse"], row["relations"], single_writer=row["single_writer"])
    pools = _pools_of(row) if row["lacks_pool"] else {}
    return Waiter(row["run_id"], row["warehouse"], (row["created_at"], row["run_id"]), relations, pools)


def _take(tx: Transaction, granted: Sequence[Candidate]) -> list[str]:
    """Insert all write claims at once; returns the runs that got fewer than they want (S29).

    The planner read the holders without a lock, so another batch may have taken one since; its row wins here.
    """
    rows = [
        {"warehouse": warehouse, "relation": relation, "run_id": candidate.run_id, "place": place}
        for place, candidate in enumerate(granted)
        for warehouse, relation in candidate.relations
    ]
    if not rows:
        return []
    got = Counter(row["run_id"] for row in tx.rows(QUERIES["take_write_claims"], rows=json_rows(rows)))
    return [candidate.run_id for candidate in granted if got[candidate.run_id] < len(candidate.relations)]


def _grant_nothing(tx: Transaction, candidates: Sequence[Candidate], admission: Admission) -> Admission:
    """After several lost races in a row the batch waits for the next pass; each run names a holder that it found."""
    held = _holders(tx, candidates)
    lost = {
        candidate.run_id: [relation_fact(*key, held[key]) for key in candidate.relations if key in held]
        for candidate in admission.granted
    }
    return Admission([], {**admission.blocked, **lost})


# ---------------------------------------------------------------------- writing it down


def _record_granted(tx: Transaction, ids: IdSource, granted: Sequence[Candidate]) -> dict[str, str]:
    if not granted:
        return {}
    claims = [{"claim_id": ids.mint("clm"), "run_id": c.run_id, "worker_kind": c.worker_kind} for c in granted]
    run_ids = [candidate.run_id for candidate in granted]
    tx.rows(QUERIES["mark_claimed"], run_ids=run_ids)
    tx.execute(QUERIES["insert_claims"], rows=json_rows(claims))
    slots = [{"pool": pool, "run_id": c.run_id, "weight": weight} for c in granted for pool, weight in c.pools.items()]
    tx.execute(QUERIES["take_slots"], rows=json_rows(slots))
    tx.execute(QUERIES["insert_outbox"], rows=json_rows(claims))
    tx.execute(_OF_RUNS["drop_blockers"], run_ids=run_ids)
    append_events(tx, ids, (NewEvent(c["run_id"], "claimed", {"claim_id": c["claim_id"]}) for c in claims))
    return {claim["run_id"]: claim["claim_id"] for claim in claims}


def _record_blocked(tx: Transaction, blocked: Mapping[str, Sequence[BlockerFact]]) -> None:
    if not blocked:
        return
    rows = json_rows(
        [
            {"run_id": run_id, "code": fact.code, "subject": fact.subject, "detail": dict(fact.detail)}
            for run_id, facts in blocked.items()
            for fact in facts[:BLOCKERS_PER_RUN]
        ]
    )
    tx.execute(QUERIES["remove_other_blockers"], run_ids=list(blocked), rows=rows)
    tx.execute(QUERIES["keep_blockers"], rows=rows)
    marks = [{"run_id": run_id, "blocked": bool(facts)} for run_id, facts in blocked.items()]
    tx.execute(QUERIES["mark_blocked"], rows=json_rows(marks))
