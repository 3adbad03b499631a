"""One pass over a shard: due schedules, deadlines, settled claims, queued runs, the outbox, and a look ahead."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ..backfills.service import BackfillService
from ..database import Transaction, load_queries
from ..dispatch.service import DispatchService
from ..kernel.errors import TidemillError
from ..kernel.limits import DEADLINES_PER_BATCH, DUE_MESSAGES_KEPT_SECONDS, SCAN_SECONDS, TICK_WINDOW_SECONDS
from ..runs.claiming import BEFORE_ALL
from ..runs.service import RunService
from ..schedules.service import ScheduleService
from .leadership import Leader
from .retention import ask_when_due
from .scanning import Scan

QUERIES = load_queries(__package__)
LOG = logging.getLogger("tidemill.scheduler")
# The keyset before every row: what a pass starts from.
_BEFORE_ALL = (datetime(1, 1, 1, tzinfo=UTC), "")


@dataclass(slots=True)
class PassResult:
    """What a visit did, for logs and tests.

    ``led`` is false when another invocation had the shard; ``began_at`` is the moment of the last pass.
    """

    shard: int
    led: bool = False
    began_at: datetime | None = None
    passes: int = 0
    ticked: int = 0
    requested: int = 0
    expired: int = 0
    claimed: list[str] = field(default_factory=list)
    backfilled: int = 0
    blocked: int = 0
    sent: int = 0
    due_ahead: list[datetime] = field(default_factory=list)
    retention_due: bool = False
    removed: dict[str, int] = field(default_factory=dict)


class OutOfTime(Exception):  # noqa: N818 - a signal, not an error
    """The invocation has no time left for another batch; the next one goes on."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The steps of a pass, in the order of scheduler.md 5.6. ``go_on`` raises ``OutOfTime`` between batches."""

    schedules: ScheduleService
    runs: RunService
    dispatch: DispatchService
    backfills: BackfillService
    pool_limits: Mapping[str, int]
    scan: Scan
    go_on: Callable[[], None]

    def run(self, leader: Leader, result: PassResult) -> list[datetime]:
        """Do everything that is due; returns the due seconds ahead that now want a message each."""
        result.passes += 1
        self.schedules.keep_zone_data(leader.write, leader.shard)
        pass_now = result.began_at = leader.write(self.scan.begin)
        self._tick(leader, result, pass_now)
        self._repeat(lambda: self._expire(leader, result))
        self.runs.release_settled(leader.write, leader.shard)
        self.runs.keep_worker_pools(leader.write, self.pool_limits)
        self._claim(leader, result)
        self._backfill(leader, result)
        self._repeat(lambda: self._send(leader, result, ()) > 0)
        self.runs.resend_cancels(leader.shard)
        ahead = leader.write(lambda tx: _look_ahead(tx, leader.shard, pass_now, result))
        self._scan(leader, pass_now)
        return ahead

    def _tick(self, leader: Leader, result: PassResult, pass_now: datetime) -> None:
        last = _BEFORE_ALL
        while True:
            self.go_on()
            batch = self.schedules.evaluate_batch(leader.write, leader.shard, pass_now, last)
            result.ticked += batch.ticked
            result.requested += batch.requested
            self.scan.uncomputable.update(batch.uncomputable)
            if batch.last is None:
                return
            last = batch.last

    def _expire(self, leader: Leader, result: PassResult) -> bool:
        ended = self.runs.expire_deadlines(leader.write, leader.shard)
        result.expired += ended
        return ended == DEADLINES_PER_BATCH

    def _claim(self, leader: Leader, result: PassResult) -> None:
        last = BEFORE_ALL
        while True:
            self.go_on()
            batch = self.runs.claim_batch(leader.write, leader.shard, last)
            result.claimed += batch.claimed.values()
            result.blocked += batch.blocked
            # What is committed is sent before the next batch, so that a long pass does not hold back its first runs.
            if batch.claimed:
                self._send(leader, result, tuple(batch.claimed.values()))
            if batch.last is None:
                return
            last = batch.last

    def _backfill(self, leader: Leader, result: PassResult) -> None:
        last = _BEFORE_ALL
        while True:
            self.go_on()
            batch = self.backfills.advance_batch(leader.write, leader.shard, last)
            result.claimed += batch.claimed.values()
            result.backfilled += len(batch.claimed)
            if batch.claimed:
                self._send(leader, result, tuple(batch.claimed.values()))
            if batch.last is None:
                return
            last = batch.last

    def _send(self, leader: Leader, result: PassResult, own_claims: tuple[str, ...]) -> int:
        sent = self.dispatch.send_pending(leader.write, leader.shard, own_claims)
        result.sent += sent
        return sent

    def _scan(self, leader: Leader, pass_now: datetime) -> None:
        """Alerts must not stop what they warn of; a pass without its scan does not count as one that came to its end."""
        try:
            leader.write(lambda tx: self.scan.finish(tx, pass_now))
        except TidemillError as error:
            LOG.warning("the platform scan of shard %s failed: %s", leader.shard, error.detail)

    def _repeat(self, step: Callable[[], bool]) -> None:
        while step():
            self.go_on()


def _look_ahead(tx: Transaction, shard: int, pass_now: datetime, result: PassResult) -> list[datetime]:
    if shard == 0:
        result.retention_due = ask_when_due(tx) or result.retention_due
    tx.execute(QUERIES["forget_due_messages"], shard=shard, pass_now=pass_now, kept_seconds=DUE_MESSAGES_KEPT_SECONDS)
    rows = tx.rows(
        QUERIES["look_ahead"],
        shard=shard,
        pass_now=pass_now,
        window_seconds=TICK_WINDOW_SECONDS,
        scan_seconds=SCAN_SECONDS,
    )
    return sorted(row["due_second"] for row in rows)
