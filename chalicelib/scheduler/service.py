"""Visits: a minute tick reads the hints, any other message goes straight to its shard (scheduler.md 5.6)."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from ..backfills.service import BackfillService
from ..cloud.ports import QueueService
from ..cron import tzdata_version
from ..database import Database, load_queries
from ..dispatch.service import DispatchService
from ..kernel.canonical import canonical_json
from ..kernel.clock import Clock, instant_text
from ..kernel.errors import TidemillError, Unavailable
from ..kernel.limits import (
    CLOCK_SKEW_SECONDS,
    EARLY_WAIT_SECONDS,
    QUEUE_DELAY_MAX_SECONDS,
    RETENTION_AGAIN_SECONDS,
    VISIT_MARGIN_SECONDS,
    VISIT_SECONDS,
)
from ..leases.fence import Fenced
from ..leases.hints import Hint, Hints, shards_to_visit, shards_to_watch
from ..leases.lowering import all_shards
from ..runs.service import RunService
from ..schedules.service import ScheduleService
from .hinting import raise_hint, watch_writers
from .leadership import Leader, Leadership
from .passing import OutOfTime, Pass, PassResult
from .recovery import RecoveryService
from .resharding import reshard
from .retention import Retention
from .scanning import Scan, skew_of

QUERIES = load_queries(__package__)
LOG = logging.getLogger("tidemill.scheduler")

VisitKind = Literal["minute", "due", "wake", "maintenance"]
TICK_QUEUE = "tick"
RECOVERY_QUEUE = "recovery"
# Those of the run queues have a reader, which ends the run.
UNREAD_DEAD_LETTERS = ("tick-dead", "recovery-dead", "task-events-dead")


class SchedulerService:
    """The scheduler of one installation. ``visit_seconds`` is the time limit of the invocation that it runs in."""

    def __init__(
        self,
        database: Database,
        leadership: Leadership,
        hints: Hints,
        *,
        queues: QueueService,
        clock: Clock,
        domains: tuple[ScheduleService, RunService, DispatchService, BackfillService],
        retention: Retention,
        recovery: RecoveryService,
        pool_limits: Mapping[str, int],
        visit_seconds: float = VISIT_SECONDS,
    ) -> None:
        self._database = database
        self._leadership = leadership
        self._hints = hints
        self._queues = queues
        self._clock = clock
        self._domains = domains
        self._recovery = recovery
        self._pool_limits = pool_limits
        self._retention = retention
        self._visit_seconds = visit_seconds

    def minute(self, hints: Mapping[int, Hint] | None = None) -> list[PassResult]:
        """The minute tick: look where there may be work; the first such shard here, the others by a message each.

        Shards with boots to watch get a message for their recovery. ``hints`` are those that the caller has read, if it
        has.
        """
        read = self._hints.read_all() if hints is None else hints
        shards, watched = shards_to_visit(read, self._clock.now(), tzdata_version()), shards_to_watch(read)
        if shards is None or watched is None:
            shards = watched = self.shards()
        self._start_recovery(watched)
        for shard in shards[1:]:
            self.send(shard, "minute")
        return [self.visit(shard, "minute") for shard in shards[:1]]

    def shards(self) -> list[int]:
        """All shards, by the store."""
        with self._database.transaction() as tx:
            return all_shards(tx)

    def visit(self, shard: int, kind: VisitKind, due_at: datetime | None = None) -> PassResult:
        """Lead the shard and pass over it until no wake-up is left; nothing when another one leads it."""
        result = PassResult(shard)
        if due_at is not None and not self._wait_until(shard, due_at):
            return result
        until = self._clock.elapsed_seconds() + self._visit_seconds - VISIT_MARGIN_SECONDS
        leader = self._leadership.lead(shard, watch=kind == "minute")
        left = kind == "maintenance"
        if leader is not None:
            result.led = True
            scan = Scan(shard)
            if kind == "minute" and shard == 0:
                scan.dead_letters = self._dead_letters()
            left = self._lead(leader, result, until, scan, maintain=left)
        if left:
            self.send(shard, "maintenance", delay_seconds=RETENTION_AGAIN_SECONDS)
        return result

    def run_pass(self, shard: int) -> PassResult:
        """A visit as a wake-up makes it."""
        return self.visit(shard, "wake")

    def reshard(self, count: int) -> list[int]:
        """Spread the work over another number of shards, and wake them all."""
        shards = reshard(self._database, self._hints, count)
        for shard in shards:
            self.send(shard, "wake")
        return shards

    def forget_ahead(self) -> None:
        """After the queues were lost (a local stack's start): look ahead anew, for the messages are gone."""
        self._database.write(lambda tx: tx.execute(QUERIES["remove_due_messages"]))

    def send(self, shard: int, kind: VisitKind, *, due_at: datetime | None = None, delay_seconds: int = 0) -> None:
        """A message for the queue ``tick``."""
        body: dict[str, object] = {"v": 1, "shard": shard, "kind": kind}
        if due_at is not None:
            body["due_at"] = instant_text(due_at)
        self._queues.send(TICK_QUEUE, canonical_json(body), delay_seconds=delay_seconds)

    def _start_recovery(self, shards: Sequence[int]) -> None:
        """A queue that does not answer holds up no schedule: the next minute asks again."""
        for shard in shards:
            try:
                self._queues.send(RECOVERY_QUEUE, canonical_json({"v": 1, "shard": shard, "kind": "recovery"}))
            except Unavailable as error:
                LOG.warning("recovery of shard %s was not started: %s", shard, error.detail)

    def _wait_until(self, shard: int, due_at: datetime) -> bool:
        """A message that comes up to 2 s early waits, an earlier one is sent again; the database clock decides."""
        early = (due_at - self._database_now()).total_seconds()
        if early > EARLY_WAIT_SECONDS:
            self.send(shard, "due", due_at=due_at, delay_seconds=_delay_seconds(early))
            return False
        while early > 0:
            self._clock.sleep(early)
            early = (due_at - self._database_now()).total_seconds()
        return True

    def _database_now(self) -> datetime:
        with self._database.transaction() as tx:
            return tx.now

    def _lead(self, leader: Leader, result: PassResult, until: float, scan: Scan, *, maintain: bool) -> bool:
        """Whether retention is left unfinished. It comes before the passes, which serve what it made wait."""
        left = maintain
        try:
            # Disarms a paused raiser of an older epoch, before the first write under this one.
            self._hints.lower(leader.shard)
            scan.skew_seconds = self._skew_seconds(leader)
            if maintain:
                left = not self._retention.drain(leader, result.removed)
            while not self._one_pass(leader, result, until, scan):
                leader.renew()
        except Fenced as fenced:
            LOG.warning("fenced: %s", fenced)
            leader.release(None)  # if the lease is still ours, nobody has to wait until it runs out
        except OutOfTime:
            leader.release(None)
            self.send(leader.shard, "wake")
        except BaseException:
            leader.release(None)
            raise
        return left

    def _dead_letters(self) -> dict[str, int] | None:
        """How much lies in the dead-letter queues that nobody reads; ``None`` when SQS does not say."""
        try:
            return {queue: self._queues.waiting(queue) for queue in UNREAD_DEAD_LETTERS}
        except TidemillError as error:
            LOG.warning("the dead-letter queues were not looked at: %s", error.detail)
            return None

    def _skew_seconds(self, leader: Leader) -> float:
        """Nothing here is decided by this machine's clock but whether to look; one that is far off is worth a word."""
        before = self._clock.now()
        database = leader.write(lambda tx: tx.now)
        skew = skew_of(before, database, self._clock.now())
        if abs(skew) > CLOCK_SKEW_SECONDS:
            LOG.warning("clock_skew: the clock here differs by %.1f s from the database's", skew)
        return skew

    def _one_pass(self, leader: Leader, result: PassResult, until: float, scan: Scan) -> bool:
        """One pass, its messages ahead, the hint, the release; ``False`` when a wake-up came meanwhile."""
        wanted = leader.wanted
        self._recovery.act_on_observed(leader, until)
        generation = watch_writers(leader, self._hints)
        steps = Pass(*self._domains, self._pool_limits, scan, lambda: self._check_time(until))
        ahead = steps.run(leader, result)
        result.due_ahead += ahead
        now = leader.write(lambda tx: tx.now) if ahead else None
        for due_second in ahead:
            early = (due_second - now).total_seconds() if now is not None else 0.0
            self.send(leader.shard, "due", due_at=due_second, delay_seconds=_delay_seconds(early))
        if result.retention_due:
            self.send(leader.shard, "maintenance")
            result.retention_due = False
        raise_hint(leader, self._hints, generation, result.began_at)
        return leader.release(wanted)

    def _check_time(self, until: float) -> None:
        if self._clock.elapsed_seconds() >= until:
            raise OutOfTime


def _delay_seconds(early_seconds: float) -> int:
    """Rounded down: a message waits for its second in the tick, and is not up to a second late."""
    return max(0, min(QUEUE_DELAY_MAX_SECONDS, math.floor(early_seconds)))
