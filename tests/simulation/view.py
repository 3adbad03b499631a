"""What the store holds, as checkers see it: read once after each change, without any fault."""

from __future__ import annotations

from typing import Any

from chalicelib.database.connection import Connection

Row = dict[str, Any]

_RUNS = """
SELECT run_id, location, target, job, shard, snapshot_id, origin, trigger_id, status, end_reason, reported_outcome,
       cancel_requested_at, cancel_id, created_at, finished_at
FROM runs ORDER BY created_at, run_id
"""
_TABLES = {
    "runs": _RUNS,
    "write_claims": "SELECT warehouse, relation, run_id, release_after FROM write_claims ORDER BY 1, 2",
    "slots": "SELECT pool, run_id, weight FROM slots ORDER BY 1, 2",
    "claims": "SELECT claim_id, run_id, boot_id, accepted_at, ended_at FROM claims ORDER BY 1",
    "run_blockers": "SELECT run_id, code, subject, detail FROM run_blockers ORDER BY 1, 2, 3",
    "ticks": "SELECT trigger_id, scheduled_for, outcome, run_id, covered_by, skipped FROM ticks ORDER BY 1, 2",
    "trigger_state": """
        SELECT t.trigger_id, t.kind, t.spec, t.spec_hash, s.enabled, s.next_at, s.shard
        FROM triggers t JOIN trigger_state s ON s.trigger_id = t.trigger_id ORDER BY 1
    """,
    "scheduler_shards": "SELECT shard, epoch, owner_token, hint_seq FROM scheduler_shards ORDER BY 1",
    "locations": "SELECT location, disabled FROM locations ORDER BY 1",
}


class StoreView:
    """Tables by name; a table is read again only after something wrote it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read: dict[str, list[Row]] = {}

    def forget(self, tables: set[str]) -> None:
        """These tables were written."""
        for table in tables:
            self._read.pop(table, None)
        if "triggers" in tables:
            self._read.pop("trigger_state", None)

    def __getitem__(self, table: str) -> list[Row]:
        if table not in self._read:
            self._read[table] = self._connection.execute(_TABLES[table].encode()).fetchall()
        return self._read[table]

    def run(self, run_id: str) -> Row | None:
        """One run."""
        return next((row for row in self["runs"] if row["run_id"] == run_id), None)
