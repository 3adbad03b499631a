"""The statements of a pass use their indexes among 100,000 schedules and 10,000 waiting runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from bench.many_schedules import fill_many
from chalicelib.database import load_queries
from chalicelib.kernel.limits import (
    ACCEPT_SECONDS,
    CANDIDATES_PER_WINDOW,
    CLAIMS_PER_BATCH,
    HOLDING_RUNS_PER_TARGET,
    RUN_WAITING_SECONDS,
    SCAN_SECONDS,
    START_SECONDS,
    TICK_WINDOW_SECONDS,
    TRIGGERS_PER_BATCH,
)
from tests.postgres import PostgresServer

Connection = psycopg.Connection[dict[str, Any]]
SIX = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
PASS_NOW = SIX + timedelta(minutes=1)
SCHEDULES, DUE, JOBS = 100_000, 100, 10_000
RUNS = """
INSERT INTO runs (run_id, location, target, job, shard, snapshot_id, inputs_json, origin, status, created_at, finished_at)
SELECT %(prefix)s || n, location, target, job, 0, snapshot_id, '{}', 'manual', %(status)s, %(at)s::timestamptz + n * interval '1 millisecond',
       CASE WHEN %(status)s <> 'queued' THEN %(at)s::timestamptz + interval '1 hour' END
FROM (SELECT row_number() OVER () AS n, location, target, job, snapshot_id FROM jobs) AS numbered
"""
BEFORE_ALL = datetime(1, 1, 1, tzinfo=UTC)
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")

STATEMENTS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "due_schedules": (
        "chalicelib.schedules",
        {"shard": 0, "pass_now": PASS_NOW, "batch": TRIGGERS_PER_BATCH, "after_at": BEFORE_ALL, "after_trigger": ""},
    ),
    "next_work": (
        "chalicelib.scheduler",
        {
            "shard": 0,
            "now": PASS_NOW,
            "since": PASS_NOW,
            "start_seconds": START_SECONDS,
            "scan_seconds": SCAN_SECONDS,
            "waiting_seconds": RUN_WAITING_SECONDS,
            "accept_lambda_seconds": ACCEPT_SECONDS["lambda"],
            "accept_container_seconds": ACCEPT_SECONDS["container"],
        },
    ),
    "look_ahead": (
        "chalicelib.scheduler",
        {"shard": 0, "pass_now": SIX, "window_seconds": TICK_WINDOW_SECONDS, "scan_seconds": SCAN_SECONDS},
    ),
    "candidate_keys": (
        "chalicelib.runs/claiming.sql",
        {"shard": 0, "now": PASS_NOW, "most": CANDIDATES_PER_WINDOW, "after_at": BEFORE_ALL, "after_run": ""},
    ),
    "candidates_of_runs": (
        "chalicelib.runs/claiming.sql",
        {"now": PASS_NOW, "run_ids": [f"new{n}" for n in range(1, CLAIMS_PER_BATCH + 1)]},
    ),
    "waiting_long": (
        "chalicelib.runs/claiming.sql",
        {
            "warehouses": ["cafe/dev"],
            "run_ids": [f"new{n}" for n in range(1, CLAIMS_PER_BATCH + 1)],
            "long_before": PASS_NOW,
            "most": HOLDING_RUNS_PER_TARGET,
        },
    ),
}
# Which index each walks, and of how many pages at most: those of what it finds, not of what there is.
WALKS = {
    "due_schedules": ("trigger_state_due", 2_000),
    "next_work": ("trigger_state_due", 200),
    "look_ahead": ("trigger_state_due", 1_000),
    "candidate_keys": ("runs_queued_of_job", 14 * JOBS),
    "candidates_of_runs": ("runs_pkey", 2_000),
    "waiting_long": ("runs_blocked_of_target", 1_000),
}


@pytest.fixture(scope="module", params=["before", "after"])
def large(postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """Many schedules, what has run, and runs that wait: before the statistics know of these, and after."""
    store = postgres.create_store()
    with psycopg.connect(store.superuser_url, autocommit=True, row_factory=dict_row) as connection:
        fill_many(connection, count=SCHEDULES, due=DUE, since=SIX)
        connection.execute(RUNS.encode(), {"prefix": "old", "status": "succeeded", "at": SIX - timedelta(days=1)})
        connection.execute("VACUUM ANALYZE runs")
        connection.execute(RUNS.encode(), {"prefix": "new", "status": "queued", "at": SIX})
        if request.param == "after":
            connection.execute("ANALYZE runs")
        yield connection
    postgres.drop(store)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_walks_its_index_and_reads_few_pages(large: Connection, name: str, mode: str) -> None:
    """Whatever the statistics: a burst is over before they are made anew."""
    plan = explained(large, name, mode)
    nodes = list(walk(plan))
    index, pages = WALKS[name]
    assert index in {node.get("Index Name") for node in nodes}
    whole = {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"}
    assert whole.isdisjoint({"trigger_state", "triggers", "jobs", "snapshot_jobs", "runs"})
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= pages


def explained(connection: Connection, name: str, mode: str) -> dict[str, Any]:
    """The plan as it ran; what it changed is rolled back."""
    package, values = STATEMENTS[name]
    query = load_queries(*package.split("/"))[name]
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
