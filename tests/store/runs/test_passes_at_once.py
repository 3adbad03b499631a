"""Passes of two shards at once, on real connections: a lost race costs a retry, and no grant is ever wrong."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest

from chalicelib.catalog.plan import shard_of
from chalicelib.database import Transaction
from chalicelib.runs.claiming import BEFORE_ALL, ClaimBatch, admit, candidates_of_runs, claim_batch
from chalicelib.runs.ending import RunEnd, end_runs
from chalicelib.scheduler.leadership import Leader
from tests.store.world import World

WAIT_SECONDS = 20


@pytest.fixture
def leaders(world: World) -> list[Leader]:
    """The leaders of two shards, for as long as their epochs last."""
    world.scheduler.reshard(2)
    world.scheduler.run_pass(0)
    return [world.leader(0), world.leader(1)]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def job_of(shard: int, prefix: str) -> str:
    return next(f"{prefix}{n}" for n in range(1_000) if shard_of("cafe", "dev", f"{prefix}{n}", 2) == shard)


class Paused:
    """A pass's transaction that has taken what it wants and then waits before its commit, or before it fails."""

    def __init__(self, world: World, leader: Leader, run_id: str, threads: ThreadPoolExecutor) -> None:
        self._taken, self._go_on = threading.Event(), threading.Event()
        self._fails = False
        self._world, self._run_id = world, run_id
        self.ended: Future[ClaimBatch] = threads.submit(leader.write, self._operation)
        assert self._taken.wait(WAIT_SECONDS)

    def _operation(self, tx: Transaction) -> ClaimBatch:
        batch = admit(tx, self._world.ids, candidates_of_runs(tx, [self._run_id]))
        self._taken.set()
        assert self._go_on.wait(WAIT_SECONDS)
        if self._fails:
            raise InterruptedError
        return batch

    def go_on(self, *, fails: bool = False) -> None:
        self._fails = fails
        self._go_on.set()


def wait_until_blocked(world: World) -> None:
    """Until a transaction waits for another one's."""
    for _ in range(WAIT_SECONDS * 50):
        found = world.sql(
            "SELECT count(*) AS n FROM pg_locks WHERE NOT granted AND locktype = 'transactionid' "
            "AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())"
        )
        if found[0]["n"]:
            return
        threading.Event().wait(0.02)
    raise AssertionError("no transaction waits for another")


@pytest.mark.parametrize("first_commits", [True, False])
def test_two_shards_want_one_relation(
    world: World, leaders: list[Leader], threads: ThreadPoolExecutor, first_commits: bool
) -> None:
    """They share no pool, so that nothing but the key of the relation keeps them apart."""
    one, two, beside = job_of(0, "one"), job_of(1, "two"), job_of(1, "beside")
    world.publish(
        {
            one: {"relations": ["a"], "worker": "lambda"},
            two: {"relations": ["a", "b"], "pools": [{"name": "default", "weight": 10}]},
            beside: {"relations": ["b"], "pools": [{"name": "default", "weight": 10}]},
        },
        shards=2,
    )
    runs = [world.request(job) for job in (one, two, beside)]
    first = Paused(world, leaders[0], runs[0], threads)
    second = threads.submit(
        leaders[1].write, lambda tx: admit(tx, world.ids, candidates_of_runs(tx, [runs[1], runs[2]]))
    )
    wait_until_blocked(world)
    first.go_on(fails=not first_commits)
    if not first_commits:
        with pytest.raises(InterruptedError):
            first.ended.result(WAIT_SECONDS)
        assert set(second.result(WAIT_SECONDS).claimed) == {runs[1]}
        assert world.state(runs[0]) == "queued"
        return
    assert set(first.ended.result(WAIT_SECONDS).claimed) == {runs[0]}
    # the batch was planned anew: what the loser would have taken is there for the run behind it
    assert set(second.result(WAIT_SECONDS).claimed) == {runs[2]}
    assert [(b.code, b.detail["holder"]) for b in world.runs.why(runs[1]).blockers] == [("write_claim", runs[0])]
    held = {row["relation"]: row["run_id"] for row in world.sql("SELECT relation, run_id FROM write_claims")}
    assert held == {"a": runs[0], "b": runs[2]}


def test_a_batch_that_loses_every_race_waits_for_the_next_pass(world: World, owner_url: str) -> None:
    """The relation is gone at each try, and never there to be read: nothing is granted, and nothing is half taken."""
    world.publish({"one": {"relations": ["a", "lost"]}, "two": {"relations": ["b"]}})
    runs = [world.request("one"), world.request("two")]
    with psycopg.connect(owner_url, autocommit=True) as owner:
        owner.execute(
            "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
            "CREATE TRIGGER lost BEFORE INSERT ON write_claims FOR EACH ROW WHEN (NEW.relation = 'lost') EXECUTE FUNCTION lose()"
        )
        assert world.run_pass() == []
        assert world.sql("SELECT 1 FROM write_claims UNION ALL SELECT 1 FROM slots") == []
        assert {world.state(run) for run in runs} == {"queued"}
        owner.execute("DROP TRIGGER lost ON write_claims")
    assert len(world.run_pass()) == 2


def test_a_pool_is_never_used_beyond_its_limit_in_a_thousand_interleavings(
    world: World, leaders: list[Leader], threads: ThreadPoolExecutor
) -> None:
    """BR-092: every state from claim to end counts, and one that comes back queues again."""
    chance = random.Random(92)
    jobs = {job_of(shard, f"w{weight}x{shard}y"): (shard, weight) for shard in (0, 1) for weight in (1, 2, 3)}
    definitions = {
        job: {"pools": [{"name": "default", "weight": weight}], "concurrency": 50} for job, (_, weight) in jobs.items()
    }
    world.publish(definitions, shards=2)
    world.sql("UPDATE pools SET slot_limit = 5 WHERE pool = 'default'")
    granted = 0
    for _ in range(1_000):
        waiting, active = by_status(world, "queued"), by_status(world, "claimed")
        if len(waiting) < 4:
            waiting += [insert_run(world, job, jobs[job][0]) for job in chance.sample(sorted(jobs), 3)]
        ending = chance.choice(active) if active else None
        steps = [
            partial(leaders[0].write, partial(decide, world, shard=0)),
            partial(leaders[1].write, partial(decide, world, shard=1)),
            *([partial(leaders[0].write, partial(end, world, run_id=ending))] if ending else []),
        ]
        results = list(threads.map(lambda step: step(), chance.sample(steps, 2)))
        granted += sum(len(result.claimed) for result in results if isinstance(result, ClaimBatch))
        (use,) = world.sql(
            "SELECT coalesce(sum(weight), 0) AS used, count(*) FILTER (WHERE r.status <> 'claimed') AS idle "
            "FROM slots s JOIN runs r ON r.run_id = s.run_id WHERE s.pool = 'default'"
        )
        assert use["used"] <= 5
        assert use["idle"] == 0
    assert granted > 100


def by_status(world: World, status: str) -> list[str]:
    return [row["run_id"] for row in world.sql("SELECT run_id FROM runs WHERE status = %s ORDER BY run_id", status)]


def insert_run(world: World, job: str, shard: int) -> str:
    run_id = world.ids.mint("run")
    world.sql(
        "INSERT INTO runs (run_id, location, target, job, shard, snapshot_id, inputs_json, origin, status, created_at) "
        "SELECT %s, location, target, job, %s, snapshot_id, '{}', 'manual', 'queued', clock_timestamp() FROM jobs WHERE job = %s",
        run_id, shard, job,
    )  # fmt: skip
    return run_id


def decide(world: World, tx: Transaction, *, shard: int) -> ClaimBatch:
    return claim_batch(tx, world.ids, shard, BEFORE_ALL)


def end(world: World, tx: Transaction, *, run_id: str) -> list[Any]:
    return end_runs(tx, world.ids, [RunEnd(run_id, "launch_failed", "accept_timeout")], settled=True)


def test_opposite_orders_never_deadlock_for_good(
    world: World, leaders: list[Leader], threads: ThreadPoolExecutor
) -> None:
    """BR-098: one wants a then b, the other b then a, round by round; all of them run in the end."""
    kinds = {0: "lambda", 1: "container"}
    jobs = {job_of(shard, "r"): shard for shard in (0, 1)}
    world.publish(
        {job: {"relations": ["a", "b"], "worker": kinds[shard], "concurrency": 50} for job, shard in jobs.items()},
        shards=2,
    )
    for _ in range(40):
        for job, shard in jobs.items():
            insert_run(world, job, shard)
    while by_status(world, "queued"):
        steps = [partial(leaders[shard].write, partial(decide, world, shard=shard)) for shard in (0, 1)]
        list(threads.map(lambda step: step(), steps))
        (active,) = by_status(world, "claimed")
        assert world.sql("SELECT count(*) AS n FROM write_claims WHERE run_id = %s", active) == [{"n": 2}]
        leaders[0].write(partial(end, world, run_id=active))
    assert by_status(world, "claimed") == []
