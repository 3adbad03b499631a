"""Who gets what: the pure decision of the claim pass (scheduler.md 7.2).

Candidates come oldest first. A run gets its place in the job, its slots and all its relations, or nothing; a run
that gets nothing says on what it waits. Earlier grants of the batch count for the later candidates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

JobKey = tuple[str, str, str]
RelationKey = tuple[str, str]

WORKER_POOL_PREFIX = "worker:"
WHOLE_WAREHOUSE = "*"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A queued run and all it needs. ``pools`` includes the implicit pool of its worker kind."""

    run_id: str
    job: JobKey
    concurrency: int
    worker_kind: str
    location_disabled: bool
    pools: Mapping[str, int]
    relations: Sequence[RelationKey]


@dataclass(frozen=True, slots=True)
class PoolUse:
    """A pool's limit, and the sum of the weights that live runs hold."""

    limit: int
    used: int
    holders: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Holder:
    """The run that holds a relation; ``release_after`` is set while the claim only settles."""

    run_id: str
    release_after: datetime | None = None


@dataclass(frozen=True, slots=True)
class BlockerFact:
    """What a waiting run lacks: stored as a row, explained by ``why``."""

    code: str
    subject: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision over one batch."""

    granted: Sequence[Candidate]
    blocked: Mapping[str, Sequence[BlockerFact]]


@dataclass(slots=True)
class _Room:
    """What is left while the batch is walked."""

    active: Counter[JobKey]
    pools: Mapping[str, PoolUse]
    taken: Counter[str]
    held: dict[RelationKey, Holder]
    granted: list[Candidate] = field(default_factory=list)

    def grant(self, candidate: Candidate) -> None:
        self.active[candidate.job] += 1
        self.taken.update(candidate.pools)
        self.held.update({key: Holder(candidate.run_id) for key in candidate.relations})
        self.granted.append(candidate)


def plan_admission(
    candidates: Sequence[Candidate],
    active: Mapping[JobKey, int],
    pools: Mapping[str, PoolUse],
    held: Mapping[RelationKey, Holder],
) -> Admission:
    """Walk the candidates oldest first; a run behind its job's limit gets neither grant nor stored blocker."""
    room = _Room(Counter(active), pools, Counter(), dict(held))
    blocked: dict[str, Sequence[BlockerFact]] = {}
    for candidate in candidates:
        facts = [*_location(candidate), *_pools(candidate, room), *_relations(candidate, room)]
        if facts:
            blocked[candidate.run_id] = facts
        elif room.active[candidate.job] < candidate.concurrency:
            room.grant(candidate)
        else:
            blocked[candidate.run_id] = []
    return Admission(room.granted, blocked)


def wanted_relations(warehouse: str, relations: Sequence[str], *, single_writer: bool) -> list[RelationKey]:
    """The keys to claim, sorted: the whole warehouse for a single-writer target, else each relation."""
    names = [WHOLE_WAREHOUSE] if single_writer else sorted(set(relations))
    return [(warehouse, name) for name in names]


def _location(candidate: Candidate) -> list[BlockerFact]:
    return [BlockerFact("location_disabled", candidate.job[0], {})] if candidate.location_disabled else []


def _pools(candidate: Candidate, room: _Room) -> list[BlockerFact]:
    facts = (_pool(name, need, room) for name, need in sorted(candidate.pools.items()))
    return [fact for fact in facts if fact is not None]


def _pool(name: str, need: int, room: _Room) -> BlockerFact | None:
    pool = room.pools.get(name, PoolUse(0, 0))
    used = pool.used + room.taken[name]
    if need + used <= pool.limit:
        return None
    detail = {"used": used, "limit": pool.limit, "need": need, "holders": list(pool.holders)}
    if need > pool.limit:
        return BlockerFact("pool_never_fits", name, detail)
    worker = name.startswith(WORKER_POOL_PREFIX)
    return BlockerFact("no_worker_capacity" if worker else "pool_full", name.removeprefix(WORKER_POOL_PREFIX), detail)


def _relations(candidate: Candidate, room: _Room) -> list[BlockerFact]:
    facts = []
    for warehouse, relation in candidate.relations:
        holder = room.held.get((warehouse, relation))
        if holder is not None:
            facts.append(relation_fact(warehouse, relation, holder))
    return facts


def relation_fact(warehouse: str, relation: str, holder: Holder) -> BlockerFact:
    """The blocker of a run that wants a relation which another run holds."""
    detail: dict[str, Any] = {"warehouse": warehouse, "relation": relation, "holder": holder.run_id}
    if holder.release_after is None:
        return BlockerFact("write_claim", f"{warehouse}:{relation}", detail)
    return BlockerFact(
        "write_claim_settling", f"{warehouse}:{relation}", detail | {"release_after": holder.release_after.isoformat()}
    )
