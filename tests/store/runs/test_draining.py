"""A backlog is drained without looking at what has to wait anyway (S11, S32)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.leases.lowering import all_shards
from chalicelib.runs.ending import RunEnd, end_runs
from tests.store.world import World

# 180 jobs that run alone, 20 that share ten relations in pairs, and one whose runs, the oldest of all, can never start.
FREE_JOBS, PAIRED_JOBS, STUCK_RUNS = 180, 20, 60
RUNS_OF_FREE, RUNS_OF_PAIRED = 110, 10
WAITING = FREE_JOBS * RUNS_OF_FREE + PAIRED_JOBS * RUNS_OF_PAIRED
CONCURRENCY = 10

FILL = """
INSERT INTO runs (run_id, location, target, job, shard, snapshot_id, inputs_json, origin, status, created_at)
SELECT 'run_' || lpad(n::text, 4, '0') || '_' || j.job, j.location, j.target, j.job, 0, j.snapshot_id, '{}', 'manual', 'queued',
       clock_timestamp() - interval '1 minute' + (n - 1) * interval '1 millisecond'
FROM jobs j CROSS JOIN LATERAL generate_series(1, %s) AS n WHERE j.job LIKE %s
"""


@pytest.fixture
def full(application_url: str) -> Iterator[World]:
    """A world in which 20,000 runs of 200 jobs wait, behind 60 of one that nothing can start."""
    made = World(application_url, container_slots=5_000)
    made.target()
    made.publish(
        {
            **{f"free{n:03}": {"concurrency": CONCURRENCY, "relations": []} for n in range(FREE_JOBS)},
            **{f"paired{n:02}": {"relations": [f"r{n // 2}"]} for n in range(PAIRED_JOBS)},
            "stuck": {"concurrency": STUCK_RUNS, "pools": [{"name": "default", "weight": 11}]},
        }
    )
    made.sql(FILL, STUCK_RUNS, "stuck")
    made.sql("UPDATE runs SET created_at = created_at - interval '1 hour'")
    made.sql(FILL, RUNS_OF_FREE, "free%")
    made.sql(FILL, RUNS_OF_PAIRED, "paired%")
    made.sql("ANALYZE runs")
    yield made
    made.close()


def test_twenty_thousand_waiting_runs_are_drained_and_none_is_looked_at_in_vain(full: World) -> None:
    world, evaluated, claimed, passes = full, 0, 0, 0
    assert WAITING == 20_000
    while claimed < WAITING:
        result = world.scheduler.run_pass(0)
        assert result.claimed, f"pass {passes} claimed nothing with {WAITING - claimed} runs waiting"
        # one place per run that a job may have at once: whoever is behind its job's limit is not looked at
        assert len(result.claimed) + result.blocked <= FREE_JOBS * CONCURRENCY + PAIRED_JOBS + STUCK_RUNS
        assert result.blocked <= STUCK_RUNS + PAIRED_JOBS // 2
        evaluated += len(result.claimed) + result.blocked
        claimed += len(result.claimed)
        passes += 1
        end_all(world)
    # the pairs share their relations in turn, so that their 20 runs a relation take 20 passes; everything else is done by then
    assert passes == 2 * RUNS_OF_PAIRED
    assert evaluated <= WAITING + passes * (STUCK_RUNS + PAIRED_JOBS // 2)
    assert world.sql("SELECT count(*) AS n FROM runs WHERE status = 'queued'") == [{"n": STUCK_RUNS}]
    assert world.sql("SELECT DISTINCT code FROM run_blockers") == [{"code": "pool_never_fits"}]


def end_all(world: World) -> None:
    """Every claimed run ends, through the one door through which runs end."""
    rows = world.sql("SELECT run_id FROM runs WHERE status = 'claimed'")
    ends = [RunEnd(row["run_id"], "cancelled") for row in rows]
    ended = world.domains.lowering.lowered(all_shards, lambda tx: end_runs(tx, world.ids, ends, settled=True))
    assert len(ended) == len(ends)
