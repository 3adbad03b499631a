"""Pools: the sum of live rows, set under a condition, honest below zero (S31)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chalicelib.kernel.errors import InvalidRequest, PreconditionFailed, PreconditionRequired
from chalicelib.runs.claiming import admit, candidates_of_runs
from chalicelib.runs.model import CancelRequest
from chalicelib.runs.pools import NEW, PoolChange, PoolView, Precondition
from tests.store.world import World


def pools_of(world: World, **reach: str) -> dict[str, PoolView]:
    page = world.domains.pools.list(reach.get("location"), reach.get("target"))
    return {pool.pool: pool for pool in page.items}


def set_limit(world: World, name: str, limit: int) -> PoolView:
    known = pools_of(world).get(name)
    condition = Precondition(if_match=frozenset({known.etag})) if known else NEW
    return world.domains.pools.set(name, PoolChange(limit=limit), condition)[0]


def weighing(weight: int, pool: str = "default") -> dict[str, Any]:
    return {"pools": [{"name": pool, "weight": weight}]}


def queued(world: World, *jobs: str) -> list[str]:
    """Runs in the order of the jobs, each a little younger."""
    return [world.request(job) for job in jobs]


def states(world: World, runs: list[str]) -> list[str]:
    return [world.state(run) for run in runs]


def woken(world: World) -> int:
    return len(world.queues.sent.get("tick", []))


# --- what a pool holds


def test_a_cancelled_run_gives_its_slot_to_the_next(world: World) -> None:
    """BR-083: nothing is to be configured for that."""
    world.publish({"a": weighing(1), "b": weighing(1)})
    set_limit(world, "default", 1)
    a, b = queued(world, "a", "b")
    world.run_pass()
    assert pools_of(world)["default"].holders == [a]
    claim_id = world.start(a)
    world.runs.cancel(a, CancelRequest(cancel_id="can_0000000000000001"), "tester")
    world.run_pass()
    assert states(world, [a, b]) == ["running", "queued"]
    world.finish(a, claim_id, "cancelled")
    world.run_pass()
    found = pools_of(world)["default"]
    assert (world.state(b), found.used, found.free, found.holders) == ("claimed", 1, 0, [b])


def test_a_promise_that_is_cancelled_before_it_is_taken_blocks_nobody(world: World) -> None:
    """BR-094: the slot goes in the transaction of the cancel, which wakes who waits."""
    world.publish({"a": weighing(1), "b": weighing(1)})
    set_limit(world, "default", 1)
    a, b = queued(world, "a", "b")
    world.run_pass()
    assert world.state(a) == "claimed"
    before = woken(world)
    world.runs.cancel(a, CancelRequest(cancel_id="can_0000000000000001"), "tester")
    assert (pools_of(world)["default"].used, woken(world) - before) == (0, 1)
    world.run_pass()
    assert states(world, [a, b]) == ["cancelled", "claimed"]


def test_weights_count_everywhere_and_a_smaller_limit_grants_nothing_more(world: World) -> None:
    """BR-089, BR-091: six slots, five runs of three; then the limit is two."""
    world.publish({f"j{n}": weighing(3) for n in range(5)})
    set_limit(world, "default", 6)
    runs = queued(world, *(f"j{n}" for n in range(5)))
    world.run_pass()
    assert states(world, runs) == ["claimed", "claimed", "queued", "queued", "queued"]
    assert pools_of(world)["default"].free == 0
    (blocker,) = world.runs.why(runs[2]).blockers
    assert (blocker.code, blocker.detail["used"], blocker.detail["limit"], blocker.detail["need"]) == (
        "pool_full",
        6,
        6,
        3,
    )
    assert sorted(blocker.detail["holders"]) == sorted(runs[:2])
    assert set_limit(world, "default", 2).free == -4
    assert world.runs.why(runs[2]).blockers[0].code == "pool_never_fits"  # also before the next pass
    assert world.run_pass() == []
    world.finish(runs[0], world.start(runs[0]))
    assert world.run_pass() == []
    (blocker,) = world.runs.why(runs[2]).blockers
    assert blocker.code == "pool_never_fits"
    assert "`tidemill admin pool set default 3`" in blocker.clears_when
    assert world.sql("SELECT DISTINCT code FROM run_blockers") == [{"code": "pool_never_fits"}]
    set_limit(world, "default", 6)
    assert len(world.run_pass()) == 1


def test_waiting_holds_no_slot(world: World) -> None:
    """BR-101: one worker; a run that waits for another one's relation leaves it to that other one."""
    world.publish({"first": {"relations": ["a"]}, "waits": {"relations": ["a"]}, "needed": {"relations": ["b"]}})
    first = world.request("first")
    world.run_pass()
    world.sql("UPDATE pools SET slot_limit = 2 WHERE pool = 'worker:container'")
    waits, needed = queued(world, "waits", "needed")
    leader = world.leader()
    batch = leader.write(lambda tx: admit(tx, world.ids, candidates_of_runs(tx, [waits, needed])))
    assert (set(batch.claimed), batch.blocked) == ({needed}, 1)
    assert world.sql("SELECT count(*) AS n FROM slots WHERE run_id = %s", waits) == [{"n": 0}]
    assert world.state(first) == "claimed"


def test_the_end_of_a_lost_worker_asks_no_pool(world: World) -> None:
    """BR-100: the pool is more than full, and everything in it is recovered at once; then at most as many run."""
    world.publish({f"j{n}": weighing(1) for n in range(6)})
    set_limit(world, "default", 3)
    runs = queued(world, *(f"j{n}" for n in range(6)))
    world.run_pass()
    for run in runs[:3]:
        world.start(run)
    set_limit(world, "default", 0)
    assert len(world.runs.boot_ended("boot_0000000000000001").runs) == 3
    assert pools_of(world)["default"].used == 0
    set_limit(world, "default", 3)
    world.run_pass()
    assert states(world, runs[3:]) == ["claimed"] * 3


# --- setting a limit


def test_a_limit_is_set_from_what_was_read(world: World) -> None:
    pools = world.domains.pools
    read = pools_of(world)["default"]
    condition = Precondition(if_match=frozenset({read.etag}))
    view, fresh = pools.set("default", PoolChange(limit=4), condition)
    assert (view.limit, fresh, view.etag != read.etag) == (4, False, True)
    with pytest.raises(PreconditionFailed, match="was changed"):
        pools.set("default", PoolChange(limit=5), condition)
    assert pools.set("default", PoolChange(limit=4), condition) == (view, False)  # a repeat after a lost answer
    assert pools.set("default", PoolChange(limit=7), Precondition(if_match=frozenset({"*"})))[0].limit == 7


def test_a_change_says_from_what_it_was_made(world: World) -> None:
    with pytest.raises(PreconditionRequired, match="If-Match"):
        world.domains.pools.set("default", PoolChange(limit=10), Precondition())


def test_a_pool_is_made_once(world: World) -> None:
    pools = world.domains.pools
    view, fresh = pools.set("heavy", PoolChange(limit=2), NEW)
    assert (view.limit, view.used, view.free, fresh) == (2, 0, 2, True)
    assert pools.set("heavy", PoolChange(limit=2), NEW) == (view, False)
    with pytest.raises(PreconditionFailed, match="there already"):
        pools.set("heavy", PoolChange(limit=3), NEW)
    with pytest.raises(PreconditionFailed, match="not there"):
        pools.set("absent", PoolChange(limit=3), Precondition(if_match=frozenset({view.etag})))


def test_of_two_at_once_one_is_told(world: World) -> None:
    read = pools_of(world)["default"]
    condition = Precondition(if_match=frozenset({read.etag}))

    def change(limit: int) -> object:
        try:
            return world.domains.pools.set("default", PoolChange(limit=limit), condition)[0].limit
        except PreconditionFailed:
            return None

    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(change, (1, 2, 3, 4)))
    assert sorted(made, key=str).count(None) == 3
    assert pools_of(world)["default"].limit in made


@pytest.mark.parametrize("kind", ["lambda", "container"])
def test_the_limit_of_a_worker_kind_is_a_setting(world: World, kind: str) -> None:
    world.run_pass()
    name = f"worker:{kind}"
    condition = Precondition(if_match=frozenset({pools_of(world)[name].etag}))
    with pytest.raises(InvalidRequest, match="the setting TIDEMILL_") as refusal:
        world.domains.pools.set(name, PoolChange(limit=3), condition)
    assert refusal.value.fields[0].field == "pool"


def test_a_change_wakes_the_shards_and_the_waiting_run_starts(world: World) -> None:
    world.publish({"a": weighing(4)})
    set_limit(world, "default", 3)
    (run,) = queued(world, "a")
    world.run_pass()
    before = woken(world)
    set_limit(world, "default", 4)
    assert woken(world) == before + 1
    assert len(world.run_pass()) == 1
    assert world.state(run) == "claimed"


# --- reading


def test_holders_are_shown_as_far_as_the_reader_reaches(world: World) -> None:
    world.target("other", "dev")
    world.publish({"a": weighing(1)})
    (run,) = queued(world, "a")
    world.run_pass()
    here, there = pools_of(world, location="cafe"), pools_of(world, location="other")
    assert (here["default"].used, here["default"].holders) == (1, [run])
    assert (there["default"].used, there["default"].holders) == (1, [])
    assert pools_of(world, location="cafe", target="prod")["default"].holders == []


def test_pools_are_read_page_by_page(world: World) -> None:
    for name in ("b", "a", "c"):
        set_limit(world, name, 1)
    first = world.domains.pools.list(None, None, 2)
    second = world.domains.pools.list(None, None, 2, first.next_cursor)
    assert [pool.pool for pool in (*first.items, *second.items)] == ["a", "b", "c", "default"]
    assert second.next_cursor is None
