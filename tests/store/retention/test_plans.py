"""The statements of retention, and the step of backfills, use their indexes among much that stays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from chalicelib.database import load_queries
from chalicelib.database.connection import _SESSION
from chalicelib.kernel.limits import BACKFILLS_PER_BATCH, RETENTION_NODES_PER_PAGE, RETENTION_ROWS_PER_PAGE
from tests.postgres import PostgresServer

Connection = psycopg.Connection[dict[str, Any]]
NOW = datetime(2026, 12, 1, tzinfo=UTC)
KEPT, OLD = 50_000, 1_000
BEFORE = NOW - timedelta(days=180)
BEGIN = datetime(1, 1, 1, tzinfo=UTC)
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")

# n counts from the newest row on: all but the last 1,000 are younger than what retention removes.
FILL = """
INSERT INTO locations VALUES ('cafe', false);
INSERT INTO targets VALUES ('cafe', 'dev', 'w', 0, false, 'lower', '{}', NULL);
CREATE TEMP TABLE aged AS SELECT n, CASE WHEN n > 50000 THEN '2026-01-01'::timestamptz ELSE '2026-11-30'::timestamptz END
    - n * interval '1 second' AS at FROM generate_series(1, 51000) n;
INSERT INTO ticks SELECT 't' || n % 100, n::text, at, 'requested', 'run' || n, NULL, at, 0, 0 FROM aged;
INSERT INTO heartbeat_observations SELECT 'boot' || n, at, 'lost', 1 FROM aged;
INSERT INTO platform_alerts SELECT 'run_lost', 'run' || n, 'clm' || n, '{}', at, at FROM aged;
INSERT INTO access_tokens SELECT 'tok' || n, 'worker', 'hash' || n, '{}', at, NULL FROM aged;
INSERT INTO snapshots SELECT 's' || n, 'cafe', 'dev', 'command', '1', 'b', NULL, false, '[]', at, NULL, NULL FROM aged WHERE n % 10 = 0;
INSERT INTO snapshot_jobs SELECT snapshot_id, 'orders', '{"concurrency": 1}' FROM snapshots;
INSERT INTO runs (run_id, location, target, job, shard, snapshot_id, inputs_json, origin, backfill_id, status, created_at, finished_at)
    SELECT 'run' || n, 'cafe', 'dev', 'orders', 0, 's' || 10 * ceil(n % 10000 / 20.0 + 1)::integer, '{}', 'manual', NULL, 'succeeded', at, at
    FROM aged;
INSERT INTO run_nodes SELECT 'run' || n, 'a', 'succeeded' FROM aged;
INSERT INTO backfills SELECT 'bkf' || n, 'cafe', 'dev', 'orders', 0, 's' || 10 * ceil(n % 10000 / 20.0 + 1)::integer, 'occurrences', '{}', '{}', 1, CASE WHEN n <= 10 THEN 'active' ELSE 'completed' END,
    NULL, '[]', 'x', '{}', at, CASE WHEN n > 10 THEN at END FROM aged;
INSERT INTO backfill_items SELECT 'bkf' || n, 'i', 'run' || n FROM aged;
INSERT INTO publications SELECT 'pub' || n, 'cafe', 'dev', 's' || n, '{}' FROM aged WHERE n % 10 = 0;
"""

RETENTION = "chalicelib.scheduler/retention.sql"
PAGE = {"before": BEFORE, "page": RETENTION_ROWS_PER_PAGE}
KEYED = {**PAGE, "after_at": BEGIN, "after_id": ""}
STATEMENTS: Mapping[str, tuple[str, Mapping[str, object], str, int]] = {
    # the file, the values, the index that it walks, and the most pages that it touches
    "remove_ticks": (RETENTION, PAGE, "ticks_by_age", 6_000),
    "remove_heartbeats": (RETENTION, PAGE, "heartbeat_observations_by_age", 6_000),
    "remove_alerts": (RETENTION, PAGE, "platform_alerts_closed", 6_000),
    "remove_tokens": (RETENTION, PAGE, "access_tokens_by_end", 6_000),
    "remove_backfills": (RETENTION, PAGE, "backfills_newest", 8_000),
    "lock_ended_runs": (RETENTION, KEYED, "runs_newest", 12_000),
    "remove_runs": (
        RETENTION,
        {"run_ids": [f"run{n}" for n in range(50_001, 50_501)], "nodes": RETENTION_NODES_PER_PAGE},
        "runs_pkey",
        40_000,
    ),
    "lock_unused_snapshots": (RETENTION, {**KEYED, "page": 1}, "snapshots_by_last_use", 500),
    "remove_snapshots": (RETENTION, {"snapshot_ids": ["s50010"]}, "snapshots_pkey", 500),
    "open_backfills": (
        "chalicelib.backfills/queries.sql",
        {"shard": 0, "now": NOW, "after_at": BEGIN, "after_id": "", "batch": BACKFILLS_PER_BATCH},
        "backfills_open_of_shard",
        1_000,
    ),
    "counts_of_backfills": (
        "chalicelib.backfills/queries.sql", {"backfill_ids": [f"bkf{n}" for n in range(50)]}, "runs_of_backfill", 500,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def large(postgres: PostgresServer) -> Iterator[Connection]:
    store = postgres.create_store()
    with psycopg.connect(store.superuser_url, autocommit=True, row_factory=dict_row, options=_SESSION) as connection:
        connection.execute("SET statement_timeout = 0")
        connection.execute(FILL.encode())
        connection.execute("VACUUM ANALYZE")
        yield connection
    postgres.drop(store)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_walks_its_index_and_touches_few_pages(large: Connection, name: str, mode: str) -> None:
    plan = explained(large, name, mode)
    nodes = list(walk(plan))
    _, _, index, pages = STATEMENTS[name]
    assert index in {node.get("Index Name") for node in nodes}
    assert {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"} == set()
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= pages


def explained(connection: Connection, name: str, mode: str) -> dict[str, Any]:
    """The plan as it ran; what it changed is rolled back."""
    place, values, _, _ = STATEMENTS[name]
    package, _, file = place.partition("/")
    query = load_queries(package, file)[name]
    names = sorted(query.parameters)
    text = _PLACEHOLDER.sub(lambda match: f"${names.index(match[1]) + 1}", query.text).replace("%%", "%")
    literals = ", ".join(["%s"] * len(names))
    execute = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE measured ({literals})"
    with connection.transaction(force_rollback=True):
        connection.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        connection.execute(f"PREPARE measured AS {text}".encode())
        cursor = psycopg.ClientCursor(connection)
        cursor.row_factory = dict_row
        row: Any = cursor.execute(execute.encode(), [values[name] for name in names]).fetchone()
        connection.execute("DEALLOCATE measured")
    plan: dict[str, Any] = row["QUERY PLAN"][0]["Plan"]
    return plan


def walk(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from walk(child)
