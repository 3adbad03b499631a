"""One pass over a shard: due schedules, deadlines, settled claims, queued runs, the outbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ..database import Database
from ..dispatch.service import DispatchService
from ..kernel.limits import DEADLINES_PER_BATCH
from ..runs.service import RunService
from ..schedules.service import ScheduleService

# The keyset before every row: what a pass starts from.
_BEFORE_ALL = (datetime(1, 1, 1, tzinfo=UTC), "")


@dataclass(slots=True)
class PassResult:
    """What one pass did, for logs and tests."""

    shard: int
    ticked: int = 0
    requested: int = 0
    expired: int = 0
    claimed: list[str] = field(default_factory=list)
    blocked: int = 0
    sent: int = 0


class SchedulerService:
    """Passes of one installation."""

    def __init__(
        self,
        database: Database,
        schedules: ScheduleService,
        runs: RunService,
        dispatch: DispatchService,
        pool_limits: Mapping[str, int],
    ) -> None:
        self._database = database
        self._schedules = schedules
        self._runs = runs
        self._dispatch = dispatch
        self._pool_limits = pool_limits

    def run_pass(self, shard: int) -> PassResult:
        """Do everything that is due in a shard now; steps are repeated until a batch is incomplete."""
        result = PassResult(shard)
        with self._database.transaction() as tx:
            pass_now = tx.now
        self._tick(result, pass_now)
        _repeat(lambda: self._expire(result))
        self._runs.release_settled()
        self._runs.keep_worker_pools(self._pool_limits)
        self._claim(result)
        self._send(result)
        self._runs.resend_cancels(shard)
        return result

    def next_due_at(self, shard: int) -> datetime | None:
        """When the next schedule of a shard is due."""
        return self._schedules.next_due_at(shard)

    def _tick(self, result: PassResult, pass_now: datetime) -> None:
        last = _BEFORE_ALL
        while True:
            batch = self._schedules.evaluate_batch(result.shard, pass_now, last)
            result.ticked += batch.ticked
            result.requested += batch.requested
            if batch.last is None:
                return
            last = batch.last

    def _expire(self, result: PassResult) -> bool:
        ended = self._runs.expire_deadlines(result.shard)
        result.expired += ended
        return ended == DEADLINES_PER_BATCH

    def _claim(self, result: PassResult) -> None:
        last = _BEFORE_ALL
        while True:
            batch = self._runs.claim_batch(result.shard, last)
            result.claimed += batch.claimed.values()
            result.blocked += batch.blocked
            # What is committed is sent before the next batch, so that a long pass does not hold back its first runs.
            result.sent += self._dispatch.send_pending(result.shard, list(batch.claimed.values()))
            if batch.last is None:
                return
            last = batch.last

    def _send(self, result: PassResult) -> None:
        _repeat(lambda: self._send_batch(result))

    def _send_batch(self, result: PassResult) -> bool:
        sent = self._dispatch.send_pending(result.shard)
        result.sent += sent
        return sent > 0


def _repeat(step: Callable[[], bool]) -> None:
    while step():
        pass
