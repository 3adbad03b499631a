"""The claim decision: all or nothing, oldest first (scheduler.md 7.2, S29, S31, S32)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.runs.plan import Admission, Candidate, Holder, PoolUse, plan_admission, wanted_relations

JOB = ("cafe", "dev", "orders")


def candidate(
    run_id: str,
    *relations: str,
    job: str = "orders",
    pools: dict[str, int] | None = None,
    concurrency: int = 1,
    disabled: bool = False,
) -> Candidate:
    return Candidate(
        run_id=run_id,
        job=("cafe", "dev", job),
        concurrency=concurrency,
        worker_kind="container",
        location_disabled=disabled,
        pools={"worker:container": 1, **(pools or {})},
        relations=[("warehouse", relation) for relation in relations],
    )


ROOM = {"worker:container": PoolUse(100, 0)}


def granted(admission: Admission) -> list[str]:
    return [item.run_id for item in admission.granted]


def test_runs_of_disjoint_relations_are_granted_together() -> None:
    admission = plan_admission([candidate("r1", "a", job="x"), candidate("r2", "b", job="y")], {}, ROOM, {})
    assert granted(admission) == ["r1", "r2"]
    assert admission.blocked == {}


def test_the_older_run_wins_a_relation_and_the_younger_names_it() -> None:
    admission = plan_admission([candidate("r1", "a", "b", job="x"), candidate("r2", "b", "c", job="y")], {}, ROOM, {})
    assert granted(admission) == ["r1"]
    (fact,) = admission.blocked["r2"]
    assert (fact.code, fact.subject, fact.detail["holder"]) == ("write_claim", "warehouse:b", "r1")


def test_a_run_that_lacks_one_relation_holds_none_of_the_others() -> None:
    held = {("warehouse", "b"): Holder("r0")}
    admission = plan_admission([candidate("r1", "a", "b", job="x"), candidate("r2", "a", job="y")], {}, ROOM, held)
    assert granted(admission) == ["r2"]


def test_a_settling_claim_says_when_it_ends() -> None:
    until = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
    admission = plan_admission([candidate("r1", "a")], {}, ROOM, {("warehouse", "a"): Holder("r0", until)})
    (fact,) = admission.blocked["r1"]
    assert fact.code == "write_claim_settling"
    assert fact.detail["release_after"] == until.isoformat()


def test_job_concurrency_is_derived_and_not_stored() -> None:
    admission = plan_admission([candidate("r1", "a"), candidate("r2", "b")], {}, ROOM, {})
    assert granted(admission) == ["r1"]
    assert admission.blocked == {"r2": []}


def test_concurrency_counts_runs_that_are_active_already() -> None:
    admission = plan_admission([candidate("r1", concurrency=2), candidate("r2", concurrency=2)], {JOB: 1}, ROOM, {})
    assert granted(admission) == ["r1"]


def test_the_pool_of_the_worker_kind_has_its_own_word() -> None:
    admission = plan_admission([candidate("r1")], {}, {"worker:container": PoolUse(2, 2, ("r8", "r9"))}, {})
    (fact,) = admission.blocked["r1"]
    assert (fact.code, fact.subject) == ("no_worker_capacity", "container")
    assert fact.detail == {"used": 2, "limit": 2, "need": 1, "holders": ["r8", "r9"]}


def test_a_full_pool_and_a_pool_that_never_fits_are_told_apart() -> None:
    pools = {**ROOM, "warehouse": PoolUse(4, 3)}
    admission = plan_admission(
        [candidate("r1", job="x", pools={"warehouse": 2}), candidate("r2", job="y", pools={"warehouse": 5})],
        {},
        pools,
        {},
    )
    assert [fact.code for facts in admission.blocked.values() for fact in facts] == ["pool_full", "pool_never_fits"]


def test_a_pool_that_does_not_exist_grants_nothing() -> None:
    admission = plan_admission([candidate("r1", pools={"gone": 1})], {}, ROOM, {})
    assert [fact.code for fact in admission.blocked["r1"]] == ["pool_never_fits"]


def test_a_disabled_location_blocks() -> None:
    admission = plan_admission([candidate("r1", disabled=True)], {}, ROOM, {})
    assert [fact.code for fact in admission.blocked["r1"]] == ["location_disabled"]


def test_a_run_names_everything_that_it_waits_for() -> None:
    held = {("warehouse", "a"): Holder("r0"), ("warehouse", "b"): Holder("r0")}
    admission = plan_admission(
        [candidate("r1", "a", "b", disabled=True, pools={"p": 1})], {}, {**ROOM, "p": PoolUse(1, 1)}, held
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


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from("abcde"), max_size=3), st.sampled_from("xyz"), st.integers(1, 3), st.integers(1, 2)
        ),
        max_size=15,
    ),
    st.integers(0, 4),
)
def test_no_batch_ever_exceeds_a_limit(wants: list[tuple[set[str], str, int, int]], limit: int) -> None:
    candidates = [
        candidate(f"r{i}", *sorted(relations), job=job, concurrency=2, pools={"p": weight})
        for i, (relations, job, weight, _) in enumerate(wants)
    ]
    admission = plan_admission(candidates, {}, {**ROOM, "p": PoolUse(limit, 0)}, {})
    taken = Counter(key for item in admission.granted for key in item.relations)
    assert all(count == 1 for count in taken.values())
    assert sum(item.pools["p"] for item in admission.granted) <= limit
    assert all(count <= 2 for count in Counter(item.job for item in admission.granted).values())
    assert {item.run_id for item in admission.granted} | set(admission.blocked) == {item.run_id for item in candidates}
