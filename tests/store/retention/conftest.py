"""A world long after what it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chalicelib.scheduler.passing import PassResult
from tests.doubles import HandClock
from tests.store.world import SNAPSHOT, World, schedule, watch_the_door

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
DAILY = schedule("0 6 * * *", name="orders/schedule")


class OldWorld(World):
    """A world with rows of any age."""

    def retain(self) -> PassResult:
        return self.scheduler.visit(0, "maintenance")

    def count(self, table: str) -> int:
        return int(self.sql(f"SELECT count(*) AS n FROM {table}")[0]["n"])  # noqa: S608 - names from tests

    def old_run(
        self, run_id: str, days: float, *, status: str = "succeeded", snapshot: str = SNAPSHOT, **more: Any
    ) -> str:
        """A run that ended ``days`` ago, and began an hour before."""
        ended = NOW - timedelta(days=days)
        values = {
            "run_id": run_id, "location": "cafe", "target": "dev", "job": "orders", "shard": 0, "snapshot_id": snapshot,
            "inputs_json": "{}", "origin": "manual", "status": status, "created_at": ended - timedelta(hours=1),
            "finished_at": ended if status in {"succeeded", "failed", "cancelled", "launch_failed"} else None, **more,
        }  # fmt: skip
        names = ", ".join(values)
        places = ", ".join(["%s"] * len(values))
        self.sql(f"INSERT INTO runs ({names}) VALUES ({places})", *values.values())  # noqa: S608 - names from tests
        return run_id

    def old_tick(self, n: int, days: float) -> None:
        at = NOW - timedelta(days=days) - timedelta(seconds=n)
        self.sql("INSERT INTO ticks VALUES ('t', %s, %s, 'requested', %s, NULL, %s, 0, 0)", str(n), at, f"run_{n}", at)

    def old_snapshot(self, snapshot_id: str, days: float, *, used: float | None = None) -> str:
        at, last = NOW - timedelta(days=days), None if used is None else NOW - timedelta(days=used)
        self.sql(
            "INSERT INTO snapshots VALUES (%s, 'cafe', 'dev', 'command', '1', 'b', NULL, false, '[]', %s, NULL, %s)",
            snapshot_id, at, last,
        )  # fmt: skip
        self.sql("INSERT INTO snapshot_jobs VALUES (%s, 'orders', '{}')", snapshot_id)
        self.sql("INSERT INTO snapshot_nodes VALUES (%s, 'orders', NULL, 'd', '{}')", snapshot_id)
        self.sql("INSERT INTO snapshot_documents VALUES (%s, 'index.json', 'h', 1, 'x')", snapshot_id)
        self.sql("INSERT INTO publications VALUES (%s, 'cafe', 'dev', %s, '{}')", f"pub_{snapshot_id}", snapshot_id)
        return snapshot_id

    def old_backfill(self, backfill_id: str, days: float, *, state: str = "completed", snapshot: str = SNAPSHOT) -> str:
        ended = NOW - timedelta(days=days)
        self.sql(
            "INSERT INTO backfills (backfill_id, location, target, job, shard, snapshot_id, over, range_json, inputs_json, "
            "max_parallel, state, requested_by, request_json, created_at, finished_at) "
            "VALUES (%s, 'cafe', 'dev', 'orders', 0, %s, 'occurrences', %s, '{}', 1, %s, 'tester', '{}', %s, %s)",
            backfill_id, snapshot, json.dumps(RANGE), state, ended - timedelta(days=1),
            ended if state in {"completed", "cancelled"} else None,
        )  # fmt: skip
        self.sql("INSERT INTO backfill_items VALUES (%s, '2026-01-01', 'run_x')", backfill_id)
        return backfill_id


RANGE = {
    "over": "occurrences", "cron": "0 6 * * *", "timezone": "UTC", "first": "2026-01-01T00:00:00.000000Z",
    "until": "2026-01-02T00:00:00.000000Z", "items": 1,
}  # fmt: skip


@pytest.fixture
def hand() -> HandClock:
    return HandClock(NOW)


@pytest.fixture
def world(application_url: str, owner_url: str, hand: HandClock) -> Iterator[OldWorld]:
    watch_the_door(owner_url)
    made = OldWorld(application_url, clock=hand)
    made.target()
    made.open_boot()
    made.publish({"orders": {"triggers": [DAILY]}})
    yield made
    made.close()
