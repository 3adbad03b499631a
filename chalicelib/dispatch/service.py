"""Sending what the outbox holds, and giving a verdict on what a queue gave up."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from ..cloud.ports import QueueService
from ..database import Database, Transaction, Write, load_queries
from ..database.connection import json_rows
from ..kernel.canonical import canonical_json
from ..kernel.ids import IdSource
from ..kernel.limits import OUTBOX_PER_BATCH, OUTBOX_RESEND_SECONDS
from ..leases.lowering import HintLowering, all_shards

QUERIES = load_queries(__package__)
MESSAGE_VERSION = 1


class Verdicts(Protocol):
    """Ends a run whose message could not be delivered (``runs`` has it)."""

    def dead_letter(self, run_id: str, claim_id: str) -> list[str]:
        """The runs that ended."""


def run_message(run_id: str, claim_id: str, shard: int) -> str:
    """The body of a run message: ids only, far below 1 KB, no inputs and no secrets (scheduler.md 7.4)."""
    return canonical_json({"v": MESSAGE_VERSION, "run_id": run_id, "claim_id": claim_id, "shard": shard})


class DispatchService:
    """Outbox and dead letters of one installation."""

    def __init__(
        self, database: Database, ids: IdSource, lowering: HintLowering, queues: QueueService, verdicts: Verdicts
    ) -> None:
        self._database = database
        self._lowering = lowering
        self._ids = ids
        self._queues = queues
        self._verdicts = verdicts

    def send_pending(self, write: Write, shard: int, own_claims: Collection[str] = ()) -> int:
        """Send one batch of unsent messages and mark it; a crash in between sends a message twice, never not at all."""
        with self._database.transaction() as tx:
            rows = self._unsent(tx, shard, own_claims)
        for queue in sorted({row["queue"] for row in rows}):
            messages = [run_message(r["run_id"], r["claim_id"], r["shard"]) for r in rows if r["queue"] == queue]
            self._queues.send_many(queue, messages)
        if rows:
            write(lambda tx: self._mark(tx, rows))
        return len(rows)

    def _unsent(self, tx: Transaction, shard: int, own_claims: Collection[str]) -> list[dict[str, Any]]:
        return tx.rows(
            QUERIES["unsent"],
            shard=shard,
            own=list(own_claims),
            resend_seconds=OUTBOX_RESEND_SECONDS,
            batch=OUTBOX_PER_BATCH,
        )

    def _mark(self, tx: Transaction, rows: list[dict[str, Any]]) -> None:
        if tx.execute(QUERIES["mark_sent"], claim_ids=[row["claim_id"] for row in rows]):
            events = [
                {"event_id": self._ids.mint("evt"), "run_id": row["run_id"], "claim_id": row["claim_id"]}
                for row in rows
            ]
            tx.execute(QUERIES["append_dispatched"], rows=json_rows(events))

    def forget_sent_unaccepted(self) -> list[str]:
        """After the queues were lost (a local stack's start): make the next pass send what nobody accepted again."""
        return self._lowering.lowered(
            all_shards,
            lambda tx: [row["claim_id"] for row in tx.rows(QUERIES["forget_sent"], kept=OUTBOX_RESEND_SECONDS)],
        )

    def dead_letter(self, body: str) -> list[str]:
        """The verdict on a dead-lettered run message; one that is not ours is dropped, since no run hangs on it."""
        message = _read(body)
        if message is None:
            return []
        return self._verdicts.dead_letter(str(message["run_id"]), str(message["claim_id"]))


def _read(body: str) -> Mapping[str, Any] | None:
    try:
        message = json.loads(body)
    except ValueError:
        return None
    return message if isinstance(message, dict) and {"run_id", "claim_id"} <= message.keys() else None
