"""Who gets what: the pure decision of the claim pass (scheduler.md 7.2).

Candidates come oldest first. A run gets its place in the job, its slots and all its relations, or nothing; a run
that gets nothing says on what it waits. Earlier grants of the batch count for the later candidates.

The fairness hold: a run that waited long is a ``Waiter``. Younger runs of its warehouse leave all its relations alone
and, while a pool has no room for it, leave room for it in its pools. A run is held by older ones only, so the oldest
is held by nobody and two old runs never wait for each other; its relations and pools drain, and it is granted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..kernel.clock import instant_text

JobKey = tuple[str, str, str]
RelationKey = tuple[str, str]
Age = tuple[datetime, str]

WORKER_POOL_PREFIX = "worker:"
WHOLE_WAREHOUSE = "*"
# What the pools say while they have no room; the hold of pools begins with it.
LACKS_POOL = frozenset({"pool_full", "no_worker_capacity"})
# What no end of another run clears: such a run holds nobody back.
CLEARED_BY_PEOPLE = frozenset({"location_disabled", "pool_never_fits"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A queued run and all it needs. ``pools`` includes the implicit pool of its worker kind.

    ``age`` orders runs, the oldest first; ``due_at`` is since when it waits (it may have been delayed).
    """

    run_id: str
    job: JobKey
    concurrency: int
    worker_kind: str
    location_disabled: bool
    warehouse: str
    age: Age
    due_at: datetime
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
class Waiter:
    """A run that has waited long; ``pools`` is what it needs of each once it lacks one, else empty."""

    run_id: str
    warehouse: str
    age: Age
    relations: Sequence[RelationKey]
    pools: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Standing:
    """What the store says before a batch: active runs by job, pools, holders, and older runs outside the batch.

    A candidate that is due since ``long_before`` or earlier has waited long.
    """

    active: Mapping[JobKey, int]
    pools: Mapping[str, PoolUse]
    held: Mapping[RelationKey, Holder]
    waiters: Sequence[Waiter]
    long_before: datetime


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

    standing: Standing
    active: Counter[JobKey]
    taken: Counter[str]
    held: dict[RelationKey, Holder]
    # the oldest waiter by relation, and all by warehouse
    wanted: dict[RelationKey, Waiter] = field(default_factory=dict)
    waiters: dict[str, list[Waiter]] = field(default_factory=dict)
    granted: list[Candidate] = field(default_factory=list)

    def grant(self, candidate: Candidate) -> None:
        self.active[candidate.job] += 1
        self.taken.update(candidate.pools)
        self.held.update({key: Holder(candidate.run_id) for key in candidate.relations})
        self.granted.append(candidate)

    def hold_for(self, waiter: Waiter) -> None:
        self.waiters.setdefault(waiter.warehouse, []).append(waiter)
        for key in waiter.relations:
            known = self.wanted.get(key)
            if known is None or waiter.age < known.age:
                self.wanted[key] = waiter

    def older_waiters(self, candidate: Candidate) -> Iterator[Waiter]:
        return (waiter for waiter in self.waiters.get(candidate.warehouse, ()) if waiter.age < candidate.age)


def plan_admission(candidates: Sequence[Candidate], standing: Standing) -> Admission:
    """Walk the candidates oldest first; a run behind its job's limit gets neither grant nor stored blocker."""
    room = _Room(standing, Counter(standing.active), Counter(), dict(standing.held))
    blocked: dict[str, Sequence[BlockerFact]] = {}
    for waiter in standing.waiters:
        room.hold_for(waiter)
    for candidate in candidates:
        if room.active[candidate.job] >= candidate.concurrency:
            blocked[candidate.run_id] = []
            continue
        facts = list(_facts(candidate, room))
        if not facts:
            room.grant(candidate)
            continue
        blocked[candidate.run_id] = facts
        if candidate.due_at <= standing.long_before and not _cleared_by_people(facts):
            room.hold_for(waiter_of(candidate, lacks_pool=any(fact.code in LACKS_POOL for fact in facts)))
    return Admission(room.granted, blocked)


def waiter_of(candidate: Candidate, *, lacks_pool: bool) -> Waiter:
    """The candidate as one that holds younger runs back."""
    pools = candidate.pools if lacks_pool else {}
    return Waiter(candidate.run_id, candidate.warehouse, candidate.age, candidate.relations, pools)


def wanted_relations(warehouse: str, relations: Iterable[str], *, single_writer: bool) -> list[RelationKey]:
    """The keys to claim, sorted: the whole warehouse for a single-writer target, else each relation."""
    names = [WHOLE_WAREHOUSE] if single_writer else sorted(set(relations))
    return [(warehouse, name) for name in names]


def _cleared_by_people(facts: Sequence[BlockerFact]) -> bool:
    return any(fact.code in CLEARED_BY_PEOPLE for fact in facts)


def _facts(candidate: Candidate, room: _Room) -> Iterator[BlockerFact]:
    if candidate.location_disabled:
        yield BlockerFact("location_disabled", candidate.job[0], {})
    for name, need in sorted(candidate.pools.items()):
        fact = _pool(candidate, name, need, room)
        if fact is not None:
            yield fact
    for key in candidate.relations:
        fact = _relation(candidate, key, room)
        if fact is not None:
            yield fact


def _pool(candidate: Candidate, name: str, need: int, room: _Room) -> BlockerFact | None:
    pool = room.standing.pools.get(name, PoolUse(0, 0))
    used = pool.used + room.taken[name]
    if need + used <= pool.limit:
        return _reserved(candidate, name, pool.limit - used - need, room)
    detail = {"used": used, "limit": pool.limit, "need": need, "holders": list(pool.holders)}
    if need > pool.limit:
        return BlockerFact("pool_never_fits", name, detail)
    code = "no_worker_capacity" if name.startswith(WORKER_POOL_PREFIX) else "pool_full"
    return BlockerFact(code, name.removeprefix(WORKER_POOL_PREFIX), detail)


def _reserved(candidate: Candidate, name: str, left: int, room: _Room) -> BlockerFact | None:
    """Whether an older run would have no room in the pool once this one has its slots."""
    for waiter in room.older_waiters(candidate):
        need = waiter.pools.get(name, 0)
        if need > left:
            return BlockerFact("held_for_older_run", name, {"pool": name, "older": waiter.run_id, "older_need": need})
    return None


def _relation(candidate: Candidate, key: RelationKey, room: _Room) -> BlockerFact | None:
    holder = room.held.get(key)
    if holder is not None:
        return relation_fact(*key, holder)
    waiter = room.wanted.get(key)
    if waiter is None or waiter.age >= candidate.age:
        return None
    warehouse, relation = key
    detail = {"warehouse": warehouse, "relation": relation, "older": waiter.run_id}
    return BlockerFact("held_for_older_run", f"{warehouse}:{relation}", detail)


def relation_fact(warehouse: str, relation: str, holder: Holder) -> BlockerFact:
    """The blocker of a run that wants a relation which another run holds."""
    subject = f"{warehouse}:{relation}"
    detail: dict[str, Any] = {"warehouse": warehouse, "relation": relation, "holder": holder.run_id}
    if holder.release_after is None:
        return BlockerFact("write_claim", subject, detail)
    return BlockerFact("write_claim_settling", subject, detail | {"release_after": instant_text(holder.release_after)})
