"""What the store holds, as checkers see it: read once after each change, without any fault."""

from __future__ import annotations

from typing import Any

from chalicelib.database.connection import Connection

Row = dict[str, Any]

_RUNS = """
SELECT run_id, location, target, job, shard, snapshot_id, origin, trigger_id, status, end_reason, reported_outcome,
       cancel_requested_at, cancel_id, created_at, finished_at, rerun_of, retry_of, retry_number, backfill_id, selection,
       not_before, heartbeat_lost_at, resolve_id, (request_json ->> 'from_failed')::boolean AS from_failed
FROM runs ORDER BY created_at, run_id
"""
_TABLES = {
    "runs": _RUNS,
    "write_claims": "SELECT warehouse, relation, run_id, release_after FROM write_claims ORDER BY 1, 2",
    "slots": "SELECT pool, run_id, weight FROM slots ORDER BY 1, 2",
    "claims": """
        SELECT claim_id, run_id, worker_kind, boot_id, accepted_at, process_ended_at, ended_at FROM claims ORDER BY 1
    """,
    "run_blockers": "SELECT run_id, code, subject, detail FROM run_blockers ORDER BY 1, 2, 3",
    "ticks": """
        SELECT trigger_id, scheduled_for, outcome, run_id, covered_by, skipped, recorded_at FROM ticks ORDER BY 1, 2
    """,
    "trigger_state": """
        SELECT t.trigger_id, t.kind, t.spec, t.spec_hash, s.enabled, s.next_at, s.shard
        FROM triggers t JOIN trigger_state s ON s.trigger_id = t.trigger_id ORDER BY 1
    """,
    "scheduler_shards": "SELECT shard, epoch, owner_token, hint_seq FROM scheduler_shards ORDER BY 1",
    "locations": "SELECT location, disabled FROM locations ORDER BY 1",
    "snapshots": "SELECT snapshot_id FROM snapshots ORDER BY 1",
    "current_snapshots": "SELECT snapshot_id FROM current_snapshots ORDER BY 1",
    "pools": "SELECT pool, slot_limit FROM pools ORDER BY 1",
    "run_nodes": "SELECT run_id, node, status FROM run_nodes ORDER BY 1, 2",
    "backfills": """
        SELECT backfill_id, location, target, job, shard, snapshot_id, over, max_parallel, state, cursor, created_at, finished_at,
               range_json
        FROM backfills ORDER BY 1
    """,
    "backfill_items": "SELECT backfill_id, item, run_id FROM backfill_items ORDER BY 1, 2, 3",
    "platform_alerts": """
        SELECT condition, subject, episode, first_seen_at, closed_at FROM platform_alerts ORDER BY 1, 2, 3
    """,
}


# Rows that a foreign key removes with those of a table.
_GO_WITH = {"runs": ("claims", "run_blockers", "run_nodes"), "backfills": ("backfill_items",)}


class StoreView:
    """Tables by name; a table is read again only after something wrote it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read: dict[str, list[Row]] = {}

    def forget(self, tables: set[str]) -> None:
        """These tables were written."""
        for table in tables:
            for written in (table, *_GO_WITH.get(table, ())):
                self._read.pop(written, None)
        if "triggers" in tables:
            self._read.pop("trigger_state", None)

    def __getitem__(self, table: str) -> list[Row]:
        if table not in self._read:
            self._read[table] = self._connection.execute(_TABLES[table].encode()).fetchall()
        return self._read[table]

    def run(self, run_id: str) -> Row | None:
        """One run."""
        return next((row for row in self["runs"] if row["run_id"] == run_id), None)
