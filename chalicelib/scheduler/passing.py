"""One pass over a shard: due schedules, deadlines, settled claims, queued runs, the outbox, and a look ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ..database import Transaction, load_queries
from ..dispatch.service import DispatchService
from ..kernel.limits import DEADLINES_PER_BATCH, DUE_MESSAGES_KEPT_SECONDS, TICK_WINDOW_SECONDS
from ..runs.service import RunService
from ..schedules.service import ScheduleService
from .leadership import Leader

QUERIES = load_queries(__package__)
# The keyset before every row: what a pass starts from.
_BEFORE_ALL = (datetime(1, 1, 1, tzinfo=UTC), "")


@dataclass(slots=True)
class PassResult:
    """What a visit did, for logs and tests. ``led`` is false when another invocation had the shard."""

    shard: int
    led: bool = False
    passes: int = 0
    ticked: int = 0
    requested: int = 0
    expired: int = 0
    claimed: list[str] = field(default_factory=list)
    blocked: int = 0
    sent: int = 0
    due_ahead: list[datetime] = field(default_factory=list)


class OutOfTime(Exception):  # noqa: N818 - a signal, not an error
    """The invocation has no time left for another batch; the next one goes on."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The steps of a pass, in the order of scheduler.md 5.6. ``go_on`` raises ``OutOfTime`` between batches."""

    schedules: ScheduleService
    runs: RunService
    dispatch: DispatchService
    pool_limits: Mapping[str, int]
    go_on: Callable[[], None]

    def run(self, leader: Leader, result: PassResult) -> list[datetime]:
        """Do everything that is due; returns the due seconds ahead that now want a message each."""
        result.passes += 1
        self.schedules.keep_zone_data(leader.write, leader.shard)
        pass_now = leader.write(lambda tx: tx.now)
        self._tick(leader, result, pass_now)
        self._repeat(lambda: self._expire(leader, result))
        self.runs.release_settled(leader.write, leader.shard)
        self.runs.keep_worker_pools(leader.write, self.pool_limits)
        self._claim(leader, result)
        self._repeat(lambda: self._send(leader, result, ()) > 0)
        self.runs.resend_cancels(leader.shard)
        return leader.write(lambda tx: _look_ahead(tx, leader.shard, pass_now))

    def _tick(self, leader: Leader, result: PassResult, pass_now: datetime) -> None:
        last = _BEFORE_ALL
        while True:
            self.go_on()
            batch = self.schedules.evaluate_batch(leader.write, leader.shard, pass_now, last)
            result.ticked += batch.ticked
            result.requested += batch.requested
            if batch.last is None:
                return
            last = batch.last

    def _expire(self, leader: Leader, result: PassResult) -> bool:
        ended = self.runs.expire_deadlines(leader.write, leader.shard)
        result.expired += ended
        return ended == DEADLINES_PER_BATCH

    def _claim(self, leader: Leader, result: PassResult) -> None:
        last = _BEFORE_ALL
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

    def _send(self, leader: Leader, result: PassResult, own_claims: tuple[str, ...]) -> int:
        sent = self.dispatch.send_pending(leader.write, leader.shard, own_claims)
        result.sent += sent
        return sent

    def _repeat(self, step: Callable[[], bool]) -> None:
        while step():
            self.go_on()


def _look_ahead(tx: Transaction, shard: int, pass_now: datetime) -> list[datetime]:
    tx.execute(QUERIES["forget_due_messages"], shard=shard, pass_now=pass_now, kept_seconds=DUE_MESSAGES_KEPT_SECONDS)
    rows = tx.rows(QUERIES["look_ahead"], shard=shard, pass_now=pass_now, window_seconds=TICK_WINDOW_SECONDS)
    return sorted(row["due_second"] for row in rows)
