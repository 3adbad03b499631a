"""The statements of the platform scan walk their indexes among many runs, many alerts and many shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from bench.many_schedules import fill_many
from chalicelib.database import load_queries
from chalicelib.kernel.canonical import canonical_json
from tests.postgres import PostgresServer
from tests.store.explaining import explained, walk

Connection = psycopg.Connection[dict[str, Any]]
SIX = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
NOW = SIX + timedelta(hours=1)
JOBS = 20_000
RUNS = """
INSERT INTO runs (run_id, location, target, job, shard, snapshot_id, inputs_json, origin, status, created_at, started_at, finished_at)
SELECT %(prefix)s || n, location, target, job, 0, snapshot_id, '{}', 'manual', %(status)s, %(at)s::timestamptz + n * interval '1 millisecond',
       CASE WHEN %(status)s IN ('running', 'succeeded') THEN %(at)s::timestamptz END,
       CASE WHEN %(status)s IN ('succeeded', 'launch_failed') THEN %(at)s::timestamptz + interval '1 minute' END
FROM (SELECT row_number() OVER (ORDER BY job) AS n, location, target, job, snapshot_id FROM jobs) AS numbered WHERE n <= %(count)s
"""
ALERTS = """
INSERT INTO platform_alerts (condition, subject, episode, detail, first_seen_at, closed_at)
SELECT %(condition)s, run_id, run_id, jsonb_build_object('location', location, 'target', target, 'job', job, 'since', '2026-12-01T06:00:00Z'),
       created_at, CASE WHEN %(closed)s THEN created_at END
FROM runs WHERE run_id LIKE %(prefix)s || '%%'
"""
COUNTS: Mapping[str, object] = {
    "shard": 0, "overlap_seconds": 60, "waiting_seconds": 1_800, "overdue_seconds": 60, "batch": 500, "now": NOW,
}  # fmt: skip
STATEMENTS: Mapping[str, Mapping[str, object]] = {
    "late_shards": {"late_seconds": 180, "now": NOW},
    "conditions_of_runs": COUNTS,
    "close_ended": {
        "now": NOW, "subject": "0", "skewed": False, "late": ["1"], "looked": True, "dead": ["tick-dead"],
        "uncomputable_seconds": 60, "kept_seconds": 600_000,
    },
}  # fmt: skip
# Pages at most: those of what is found, not of what there is.
FACTS = canonical_json(
    [{"condition": "run_waiting", "subject": f"wait{n}", "episode": f"wait{n}", "detail": {}} for n in range(1, 501)]
    + [{"condition": "clock_skew", "subject": "0", "episode": None, "detail": {}}]
)
KEEPING: Mapping[str, Mapping[str, object]] = {
    "reopen_alerts": {"rows": FACTS},
    "open_alerts": {"rows": FACTS, "now": NOW},
    "close_alerts": {"condition": "run_waiting", "subjects": [f"wait{n}" for n in range(1, 501)], "now": NOW},
}
PAGES = {
    "late_shards": 2_000,
    "conditions_of_runs": 6_000,
    "close_ended": 6_000,
    "reopen_alerts": 6_000,
    "open_alerts": 20_000,
    "close_alerts": 6_000,
}


@pytest.fixture(scope="module", params=["before", "after"])
def large(postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """Many runs of all kinds, few of which concern the scan: before the statistics know of them, and after.

    The session is that of the product.
    """
    store = postgres.create_store()
    with psycopg.connect(
        store.superuser_url, autocommit=True, row_factory=dict_row, options="-c enable_seqscan=off -c jit=off"
    ) as connection:
        fill_many(connection, count=JOBS, due=100, since=SIX)
        connection.execute("ANALYZE")
        runs = [
            ("old", "succeeded", JOBS, SIX - timedelta(days=3)), ("dead", "launch_failed", 5_000, SIX - timedelta(days=2)),
            ("late", "launch_failed", 50, NOW - timedelta(minutes=2)), ("wait", "queued", 500, SIX),
            ("new", "queued", 10_000, NOW - timedelta(minutes=1)), ("run", "running", 200, SIX),
        ]  # fmt: skip
        for prefix, status, count, at in runs:
            connection.execute(RUNS.encode(), {"prefix": prefix, "status": status, "count": count, "at": at})
        for condition, prefix, closed in (
            ("launch_failed", "dead", True),
            ("run_lost", "old", True),
            ("run_waiting", "wait1", False),
        ):
            connection.execute(ALERTS.encode(), {"condition": condition, "prefix": prefix, "closed": closed})
        connection.execute(
            "INSERT INTO claims (claim_id, run_id, worker_kind) SELECT 'clm_' || run_id, run_id, 'container' FROM runs WHERE status <> 'queued'"
        )
        connection.execute("UPDATE scheduler_shards SET passed_at = %s", [NOW - timedelta(minutes=4)])
        connection.execute("INSERT INTO scheduler_shards SELECT n, 0, '', 0, '' FROM generate_series(1, 99) AS n")
        if request.param == "after":
            connection.execute("ANALYZE")
        yield connection
    postgres.drop(store)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", [*STATEMENTS, *KEEPING])
def test_a_statement_of_the_scan_reads_few_pages(large: Connection, name: str, mode: str) -> None:
    scan, keeping = load_queries("chalicelib.scheduler", "scanning.sql"), load_queries("chalicelib.alerts")
    query, values = (scan[name], STATEMENTS[name]) if name in STATEMENTS else (keeping[name], KEEPING[name])
    plan = explained(large, query, values, mode)
    whole = {node["Relation Name"] for node in walk(plan) if node["Node Type"] == "Seq Scan"}
    assert whole.isdisjoint({"runs", "claims", "platform_alerts", "trigger_state", "snapshot_jobs", "ticks", "outbox"})
    pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert pages <= PAGES[name], pages
