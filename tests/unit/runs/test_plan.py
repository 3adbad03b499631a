"""The claim decision: all or nothing, oldest first (scheduler.md 7.2, S29, S31, S32)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from chalicelib.runs.plan import (
    Admission,
    BlockerFact,
    Candidate,
    Holder,
    JobKey,
    PoolUse,
    RelationKey,
    Standing,
    Waiter,
    plan_admission,
    wanted_relations,
)

JOB = ("cafe", "dev", "orders")
SIX = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
LONG = timedelta(minutes=15)


def candidate(
    run_id: str,
    *relations: str,
    job: str = "orders",
    pools: Mapping[str, int] | None = None,
    concurrency: int = 1,
    disabled: bool = False,
    waited: timedelta = timedelta(),
    warehouse: str = "warehouse",
) -> Candidate:
    return Candidate(
        run_id=run_id,
        job=("cafe", "dev", job),
        concurrency=concurrency,
        worker_kind="container",
        location_disabled=disabled,
        warehouse=warehouse,
        age=(SIX - waited, run_id),
        due_at=SIX - waited,
        pools={"worker:container": 1, **(pools or {})},
        relations=[(warehouse, relation) for relation in relations],
    )


ROOM = {"worker:container": PoolUse(100, 0)}


def decide(
    candidates: Sequence[Candidate],
    *,
    active: Mapping[JobKey, int] | None = None,
    pools: Mapping[str, PoolUse] = ROOM,
    held: Mapping[RelationKey, Holder] | None = None,
    waiters: Sequence[Waiter] = (),
) -> Admission:
    return plan_admission(candidates, Standing(active or {}, pools, held or {}, waiters, SIX - LONG))


def granted(admission: Admission) -> list[str]:
    return [item.run_id for item in admission.granted]


def test_runs_of_disjoint_relations_are_granted_together() -> None:
    admission = decide([candidate("r1", "a", job="x"), candidate("r2", "b", job="y")])
    assert granted(admission) == ["r1", "r2"]
    assert admission.blocked == {}


def test_the_older_run_wins_a_relation_and_the_younger_names_it() -> None:
    admission = decide([candidate("r1", "a", "b", job="x"), candidate("r2", "b", "c", job="y")])
    assert granted(admission) == ["r1"]
    (fact,) = admission.blocked["r2"]
    assert (fact.code, fact.subject, fact.detail["holder"]) == ("write_claim", "warehouse:b", "r1")


def test_a_run_that_lacks_one_relation_holds_none_of_the_others() -> None:
    held = {("warehouse", "b"): Holder("r0")}
    admission = decide([candidate("r1", "a", "b", job="x"), candidate("r2", "a", job="y")], held=held)
    assert granted(admission) == ["r2"]


def test_a_settling_claim_says_when_it_ends() -> None:
    until = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
    admission = decide([candidate("r1", "a")], held={("warehouse", "a"): Holder("r0", until)})
    (fact,) = admission.blocked["r1"]
    assert fact.code == "write_claim_settling"
    assert fact.detail["release_after"] == "2026-12-01T06:00:00.000000Z"


def test_job_concurrency_is_derived_and_not_stored() -> None:
    admission = decide([candidate("r1", "a"), candidate("r2", "b")])
    assert granted(admission) == ["r1"]
    assert admission.blocked == {"r2": []}


def test_concurrency_counts_runs_that_are_active_already() -> None:
    admission = decide([candidate("r1", concurrency=2), candidate("r2", concurrency=2)], active={JOB: 1})
    assert granted(admission) == ["r1"]


def test_the_pool_of_the_worker_kind_has_its_own_word() -> None:
    admission = decide([candidate("r1")], pools={"worker:container": PoolUse(2, 2, ("r8", "r9"))})
    (fact,) = admission.blocked["r1"]
    assert (fact.code, fact.subject) == ("no_worker_capacity", "container")
    assert fact.detail == {"used": 2, "limit": 2, "need": 1, "holders": ["r8", "r9"]}


def test_a_full_pool_and_a_pool_that_never_fits_are_told_apart() -> None:
    pools = {**ROOM, "warehouse": PoolUse(4, 3)}
    admission = decide(
        [candidate("r1", job="x", pools={"warehouse": 2}), candidate("r2", job="y", pools={"warehouse": 5})],
        pools=pools,
    )
    assert [fact.code for facts in admission.blocked.values() for fact in facts] == ["pool_full", "pool_never_fits"]


def test_a_pool_that_does_not_exist_grants_nothing() -> None:
    admission = decide([candidate("r1", pools={"gone": 1})])
    assert [fact.code for fact in admission.blocked["r1"]] == ["pool_never_fits"]


def test_a_disabled_location_blocks() -> None:
    admission = decide([candidate("r1", disabled=True)])
    assert [fact.code for fact in admission.blocked["r1"]] == ["location_disabled"]


def test_a_run_names_everything_that_it_waits_for() -> None:
    held = {("warehouse", "a"): Holder("r0"), ("warehouse", "b"): Holder("r0")}
    admission = decide(
        [candidate("r1", "a", "b", disabled=True, pools={"p": 1})], pools={**ROOM, "p": PoolUse(1, 1)}, held=held
    )
    assert [fact.code for fact in admission.blocked["r1"]] == [
        "location_disabled",
        "pool_full",
        "write_claim",
        "write_claim",
    ]


def test_a_single_writer_target_claims_its_whole_warehouse() -> None:
    assert wanted_relations("w", ["b", "a", "a"], single_writer=False) == [("w", "a"), ("w", "b")]
    assert wanted_relations("w", [], single_writer=True) == [("w", "*")]


# --- the fairness hold


def facts_of(admission: Admission, run_id: str) -> list[tuple[str, str, str | None]]:
    return [(fact.code, fact.subject, fact.detail.get("older")) for fact in admission.blocked[run_id]]


def test_an_old_wide_run_keeps_younger_ones_from_all_its_relations() -> None:
    """Not only from the one that it lacks now: else small runs would take the others in turn for ever."""
    held = {("warehouse", "b"): Holder("r0")}
    wide, small = candidate("wide", "a", "b", job="x", waited=LONG), candidate("small", "a", job="y")
    admission = decide([wide, small], held=held)
    assert granted(admission) == []
    assert facts_of(admission, "small") == [("held_for_older_run", "warehouse:a", "wide")]


def test_a_run_that_has_not_waited_long_holds_nothing() -> None:
    held = {("warehouse", "b"): Holder("r0")}
    wide = candidate("wide", "a", "b", job="x", waited=LONG - timedelta(seconds=1))
    assert granted(decide([wide, candidate("small", "a", job="y")], held=held)) == ["small"]


def test_a_delayed_run_waits_since_its_time_has_come() -> None:
    held = {("warehouse", "b"): Holder("r0")}
    wide = candidate("wide", "a", "b", job="x", waited=2 * LONG)
    retried = Candidate(**{name: getattr(wide, name) for name in Candidate.__slots__} | {"due_at": SIX})
    assert granted(decide([retried, candidate("small", "a", job="y")], held=held)) == ["small"]


def test_an_old_run_that_lacks_a_pool_keeps_room_in_all_its_pools() -> None:
    pools = {**ROOM, "p": PoolUse(4, 2), "q": PoolUse(4, 0)}
    wide = candidate("wide", job="x", pools={"p": 3, "q": 3}, waited=LONG)
    admission = decide(
        [
            wide,
            candidate("takes_p", job="y", pools={"p": 1}),
            candidate("takes_q", job="z", pools={"q": 2}),
            candidate("fits_beside", job="w", pools={"q": 1}),
        ],
        pools=pools,
    )
    assert granted(admission) == ["fits_beside"]
    assert facts_of(admission, "wide") == [("pool_full", "p", None)]
    assert facts_of(admission, "takes_p") == [("held_for_older_run", "p", "wide")]
    assert facts_of(admission, "takes_q") == [("held_for_older_run", "q", "wide")]


def test_an_old_run_that_only_waits_for_a_relation_takes_no_worker_from_others() -> None:
    held = {("warehouse", "a"): Holder("r0")}
    wide, other = candidate("wide", "a", job="x", waited=LONG), candidate("other", "b", job="y")
    assert granted(decide([wide, other], pools={"worker:container": PoolUse(1, 0)}, held=held)) == ["other"]


def test_the_hold_reaches_over_batches_and_shards() -> None:
    waiter = Waiter("wide", "warehouse", (SIX - LONG, "wide"), [("warehouse", "a")], {"p": 2})
    younger = candidate("younger", "a", job="x", pools={"p": 1})
    older = candidate("older", "a", job="y", pools={"p": 1}, waited=2 * LONG)
    pools = {**ROOM, "p": PoolUse(2, 0)}
    assert granted(decide([older], pools=pools, waiters=[waiter])) == ["older"]
    admission = decide([younger], pools=pools, waiters=[waiter])
    assert facts_of(admission, "younger") == [
        ("held_for_older_run", "p", "wide"),
        ("held_for_older_run", "warehouse:a", "wide"),
    ]


def test_another_warehouse_is_not_held_back() -> None:
    waiter = Waiter("wide", "other", (SIX - LONG, "wide"), [("other", "a")], {"p": 2})
    admission = decide([candidate("r1", "a", pools={"p": 1})], pools={**ROOM, "p": PoolUse(2, 0)}, waiters=[waiter])
    assert granted(admission) == ["r1"]


def test_a_run_that_only_people_can_help_holds_nobody_back() -> None:
    """A disabled location, a pool that is too small: neither ends with another run."""
    pools = {**ROOM, "p": PoolUse(1, 0)}
    held = {("warehouse", "b"): Holder("r0")}
    small = candidate("small", "a", job="y")
    for stuck in (
        candidate("stuck", "a", "b", job="x", waited=LONG, disabled=True),
        candidate("stuck", "a", "b", job="x", waited=LONG, pools={"p": 2}),
    ):
        assert granted(decide([stuck, small], pools=pools, held=held)) == ["small"]


def test_two_old_runs_that_wait_for_different_things_do_not_hold_each_other() -> None:
    """Each wants what the other wants too; only the younger is held, so one of them starts as soon as it can."""
    first = candidate("first", "a", "b", job="x", waited=3 * LONG)
    second = candidate("second", "b", "c", job="y", waited=2 * LONG)
    both_held = {("warehouse", "a"): Holder("r8"), ("warehouse", "c"): Holder("r9")}
    admission = decide([first, second], held=both_held)
    assert facts_of(admission, "first") == [("write_claim", "warehouse:a", None)]
    assert facts_of(admission, "second") == [
        ("held_for_older_run", "warehouse:b", "first"),
        ("write_claim", "warehouse:c", None),
    ]
    assert granted(decide([first, second], held={("warehouse", "c"): Holder("r9")})) == ["first"]
    # what the younger one waits for is free, and the older one's is not: the younger goes on waiting, for one that will end
    assert granted(decide([first, second], held={("warehouse", "a"): Holder("r8")})) == []
    assert granted(decide([second])) == ["second"]


# --- what holds for any batch

NEEDS = st.tuples(
    st.sets(st.sampled_from("abcde"), max_size=3),
    st.sampled_from("xyz"),
    st.integers(1, 3),
    st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(NEEDS, max_size=15), st.integers(0, 4), st.sets(st.sampled_from("abcde"), max_size=2))
def test_no_batch_ever_exceeds_a_limit(
    wants: list[tuple[set[str], str, int, bool]], limit: int, taken: set[str]
) -> None:
    candidates = [
        candidate(
            f"r{i:02}",
            *sorted(relations),
            job=job,
            concurrency=2,
            pools={"p": weight},
            waited=LONG if old else timedelta(),
        )
        for i, (relations, job, weight, old) in enumerate(wants)
    ]
    candidates.sort(key=lambda one: one.age)
    held = {("warehouse", relation): Holder("r_before") for relation in taken}
    admission = decide(candidates, pools={**ROOM, "p": PoolUse(limit, 0)}, held=held)
    writers = Counter(key for item in admission.granted for key in item.relations)
    assert all(count == 1 for count in writers.values())
    assert not writers.keys() & held.keys()
    assert sum(item.pools["p"] for item in admission.granted) <= limit
    assert all(count <= 2 for count in Counter(item.job for item in admission.granted).values())
    assert {item.run_id for item in admission.granted} | set(admission.blocked) == {item.run_id for item in candidates}
    assert not {item.run_id for item in admission.granted} & set(admission.blocked)
    assert all(facts or jobs_full(admission, candidates, run_id) for run_id, facts in admission.blocked.items())
    assert_oldest_is_held_by_nobody(candidates, admission.blocked)


def jobs_full(admission: Admission, candidates: Sequence[Candidate], run_id: str) -> bool:
    (run,) = (one for one in candidates if one.run_id == run_id)
    return sum(item.job == run.job for item in admission.granted) >= run.concurrency


def assert_oldest_is_held_by_nobody(
    candidates: Sequence[Candidate], blocked: Mapping[str, Sequence[BlockerFact]]
) -> None:
    ages = {one.run_id: one.age for one in candidates}
    for run_id, facts in blocked.items():
        for fact in facts:
            if fact.code == "held_for_older_run":
                assert ages[fact.detail["older"]] < ages[run_id]


@settings(max_examples=120, deadline=None)
@example([({"a"}, {}, 2), ({"b"}, {}, 2)], 1)
@example([(set(), {"p": 2}, 2), (set(), {"q": 2}, 2)], 1)
@example([({"a"}, {"q": 1}, 4), ({"b"}, {"p": 2}, 3), ({"c"}, {}, 2)], 2)
@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from("abc"), max_size=2),
            st.dictionaries(st.sampled_from("pq"), st.integers(1, 2), max_size=2),
            st.integers(1, 4),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 3),
)
def test_no_stream_of_small_runs_starves_a_wide_one(
    stream: list[tuple[set[str], dict[str, int], int]], each_minute: int
) -> None:
    """Minute by minute small runs arrive without end, hold what they took for some minutes, and are decided in order of
    age beside one run that wants everything. It is granted within the hold and what was held when the hold began."""
    wide = aged(candidate("wide", "a", "b", "c", job="wide", pools={"p": 3, "q": 3}), SIX + timedelta(minutes=1))
    waiting, running, number = list[Candidate](), list[tuple[int, Candidate]](), 0
    for minute in range(60):
        now = SIX + timedelta(minutes=minute)
        running = [(end, run) for end, run in running if end > minute]
        if minute == 1:
            waiting.append(wide)
        for _ in range(each_minute):
            relations, pools, _ = stream[number % len(stream)]
            made = candidate(f"s{number:04}", *sorted(relations), job=f"j{number}", pools=pools)
            waiting.append(aged(made, now))
            number += 1
        used = Counter[str]()
        for _, run in running:
            used.update(run.pools)
        pools_now = {**ROOM, "p": PoolUse(4, used["p"]), "q": PoolUse(4, used["q"])}
        held = {key: Holder(run.run_id) for _, run in running for key in run.relations}
        admission = plan_admission(waiting[:50], Standing({}, pools_now, held, (), now - LONG))
        if wide in admission.granted:
            return
        for run in admission.granted:
            running.append((minute + stream[int(run.run_id[1:]) % len(stream)][2], run))
        waiting = [run for run in waiting if run not in admission.granted]
    raise AssertionError("after an hour the wide run still waits")


def aged(run: Candidate, at: datetime) -> Candidate:
    values = {name: getattr(run, name) for name in Candidate.__slots__}
    return Candidate(**values | {"age": (at, run.run_id), "due_at": at})
