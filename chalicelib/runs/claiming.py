"""The claim pass: one batch is one transaction and a bounded number of statements (scheduler.md 7.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..database import Transaction, load_queries
from ..database.connection import json_rows
from ..kernel.ids import IdSource
from ..kernel.limits import CLAIMS_PER_BATCH
from .plan import (
    WORKER_POOL_PREFIX,
    Admission,
    BlockerFact,
    Candidate,
    Holder,
    JobKey,
    PoolUse,
    RelationKey,
    plan_admission,
    relation_fact,
    wanted_relations,
)
from .queueing import NewEvent, append_events

QUERIES = load_queries(__package__)

Keyset = tuple[datetime, str]


@dataclass(frozen=True, slots=True)
class ClaimBatch:
    """What one batch did; ``last`` is where the next one goes on, ``None`` when this one was not full."""

    claimed: Mapping[str, str]
    blocked: int
    last: Keyset | None


def claim_batch(tx: Transaction, ids: IdSource, shard: int, after: Keyset) -> ClaimBatch:
    """Decide up to 50 queued runs of a shard behind the keyset ``after``; ``claimed`` maps run to claim.

    Only the shard's leader calls this: two batches of one shard at once could exceed a job's concurrency when runs
    commit out of order.
    """
    rows = tx.rows(QUERIES["candidates"], shard=shard, batch=CLAIMS_PER_BATCH, after_at=after[0], after_run=after[1])
    if not rows:
        return ClaimBatch({}, 0, None)
    candidates = [_candidate(row) for row in rows]
    admission = _decide(tx, candidates)
    admission = _take(tx, admission)
    claimed = _record_granted(tx, ids, admission.granted)
    _record_blocked(tx, admission.blocked)
    full = len(rows) == CLAIMS_PER_BATCH
    return ClaimBatch(claimed, len(admission.blocked), (rows[-1]["created_at"], rows[-1]["run_id"]) if full else None)


def _candidate(row: Mapping[str, Any]) -> Candidate:
    pools = Counter({WORKER_POOL_PREFIX + row["worker_kind"]: 1})
    pools.update({pool["name"]: pool["weight"] for pool in row["pools"]})
    return Candidate(
        run_id=row["run_id"],
        job=(row["location"], row["target"], row["job"]),
        concurrency=row["concurrency"],
        worker_kind=row["worker_kind"],
        location_disabled=row["location_disabled"],
        pools=pools,
        relations=wanted_relations(row["warehouse"], row["relations"], single_writer=row["single_writer"]),
    )


def _decide(tx: Transaction, candidates: Sequence[Candidate]) -> Admission:
    names = sorted({name for candidate in candidates for name in candidate.pools})
    limits = {row["pool"]: row["slot_limit"] for row in tx.rows(QUERIES["lock_pools"], pools=names)}
    use = {row["pool"]: row for row in tx.rows(QUERIES["pool_use"], pools=names)}
    pools = {
        name: PoolUse(limit, use[name]["used"], use[name]["holders"]) if name in use else PoolUse(limit, 0)
        for name, limit in limits.items()
    }
    return plan_admission(candidates, _active(tx, candidates), pools, _holders(tx, candidates))


def _active(tx: Transaction, candidates: Sequence[Candidate]) -> dict[JobKey, int]:
    keys = sorted({candidate.job for candidate in candidates})
    jobs = json_rows([{"location": key[0], "target": key[1], "job": key[2]} for key in keys])
    rows = tx.rows(QUERIES["active_of_jobs"], jobs=jobs)
    return {(row["location"], row["target"], row["job"]): row["active"] for row in rows}


def _holders(tx: Transaction, candidates: Iterable[Candidate]) -> dict[RelationKey, Holder]:
    keys = sorted({key for candidate in candidates for key in candidate.relations})
    rows = tx.rows(QUERIES["holders"], keys=json_rows([{"warehouse": w, "relation": r} for w, r in keys]))
    return {(row["warehouse"], row["relation"]): Holder(row["run_id"], row["release_after"]) for row in rows}


def _take(tx: Transaction, admission: Admission) -> Admission:
    """Insert all write claims at once; a run that got fewer than it wants keeps none (S29).

    The planner read the holders without a lock, so another shard's pass may have taken one since; its row wins here.
    """
    wanted = {candidate.run_id: len(candidate.relations) for candidate in admission.granted}
    rows = [
        {"warehouse": warehouse, "relation": relation, "run_id": candidate.run_id, "place": place}
        for place, candidate in enumerate(admission.granted)
        for warehouse, relation in candidate.relations
    ]
    got = (
        Counter(row["run_id"] for row in tx.rows(QUERIES["take_write_claims"], rows=json_rows(rows)))
        if rows
        else Counter()
    )
    short = [run_id for run_id, count in wanted.items() if got[run_id] < count]
    return _without(tx, admission, short) if short else admission


def _without(tx: Transaction, admission: Admission, short: Sequence[str]) -> Admission:
    tx.execute(QUERIES["drop_write_claims"], run_ids=list(short))
    losers = [candidate for candidate in admission.granted if candidate.run_id in short]
    held = _holders(tx, losers)
    blocked = dict(admission.blocked)
    for loser in losers:
        blocked[loser.run_id] = [relation_fact(*key, held[key]) for key in loser.relations if key in held]
    return Admission([candidate for candidate in admission.granted if candidate.run_id not in short], blocked)


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
    tx.execute(QUERIES["drop_blockers"], run_ids=run_ids)
    append_events(tx, ids, (NewEvent(c["run_id"], "claimed", {"claim_id": c["claim_id"]}) for c in claims))
    return {claim["run_id"]: claim["claim_id"] for claim in claims}


def _record_blocked(tx: Transaction, blocked: Mapping[str, Sequence[BlockerFact]]) -> None:
    if not blocked:
        return
    rows = json_rows(
        [
            {"run_id": run_id, "code": fact.code, "subject": fact.subject, "detail": dict(fact.detail)}
            for run_id, facts in blocked.items()
            for fact in facts
        ]
    )
    tx.execute(QUERIES["remove_other_blockers"], run_ids=list(blocked), rows=rows)
    tx.execute(QUERIES["keep_blockers"], rows=rows)
