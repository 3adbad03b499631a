"""Visits: a minute tick reads the hints, any other message goes straight to its shard (scheduler.md 5.6)."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from ..cloud.ports import QueueService
from ..cron import tzdata_version
from ..database import Database, load_queries
from ..dispatch.service import DispatchService
from ..kernel.canonical import canonical_json
from ..kernel.clock import Clock, instant_text
from ..kernel.limits import (
    CLOCK_SKEW_SECONDS,
    EARLY_WAIT_SECONDS,
    QUEUE_DELAY_MAX_SECONDS,
    VISIT_MARGIN_SECONDS,
    VISIT_SECONDS,
)
from ..leases.fence import Fenced
from ..leases.hints import Hint, Hints, shards_to_visit
from ..leases.lowering import all_shards
from ..runs.service import RunService
from ..schedules.service import ScheduleService
from .hinting import raise_hint, watch_writers
from .leadership import Leader, Leadership
from .passing import OutOfTime, Pass, PassResult
from .resharding import reshard

QUERIES = load_queries(__package__)
LOG = logging.getLogger("tidemill.scheduler")

VisitKind = Literal["minute", "due", "wake"]
TICK_QUEUE = "tick"


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
        domains: tuple[ScheduleService, RunService, DispatchService],
        pool_limits: Mapping[str, int],
        visit_seconds: float = VISIT_SECONDS,
    ) -> None:
        self._database = database
        self._leadership = leadership
        self._hints = hints
        self._queues = queues
        self._clock = clock
        self._domains = domains
        self._pool_limits = pool_limits
        self._visit_seconds = visit_seconds

    def minute(self, hints: Mapping[int, Hint] | None = None) -> list[PassResult]:
        """The minute tick: look where there may be work; the first such shard here, the others by a message each.

        ``hints`` are those that the caller has read, if it has.
        """
        read = self._hints.read_all() if hints is None else hints
        shards = shards_to_visit(read, self._clock.now(), tzdata_version())
        if shards is None:
            shards = self.shards()
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
        if leader is not None:
            result.led = True
            self._lead(leader, result, until)
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

    def _lead(self, leader: Leader, result: PassResult, until: float) -> None:
        try:
            # Disarms a paused raiser of an older epoch, before the first write under this one.
            self._hints.lower(leader.shard)
            self._check_clock(leader)
            while not self._one_pass(leader, result, until):
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

    def _check_clock(self, leader: Leader) -> None:
        """Nothing here is decided by this machine's clock but whether to look; one that is far off is worth a word."""
        skew = (self._clock.now() - leader.write(lambda tx: tx.now)).total_seconds()
        if abs(skew) > CLOCK_SKEW_SECONDS:
            LOG.warning("clock_skew: the clock here differs by %.1f s from the database's", skew)

    def _one_pass(self, leader: Leader, result: PassResult, until: float) -> bool:
        """One pass, its messages ahead, the hint, the release; ``False`` when a wake-up came meanwhile."""
        wanted = leader.wanted
        generation = watch_writers(leader, self._hints)
        steps = Pass(*self._domains, self._pool_limits, lambda: self._check_time(until))
        ahead = steps.run(leader, result)
        result.due_ahead += ahead
        now = leader.write(lambda tx: tx.now) if ahead else None
        for due_second in ahead:
            early = (due_second - now).total_seconds() if now is not None else 0.0
            self.send(leader.shard, "due", due_at=due_second, delay_seconds=_delay_seconds(early))
        raise_hint(leader, self._hints, generation)
        return leader.release(wanted)

    def _check_time(self, until: float) -> None:
        if self._clock.elapsed_seconds() >= until:
            raise OutOfTime


def _delay_seconds(early_seconds: float) -> int:
    """Rounded down: a message waits for its second in the tick, and is not up to a second late."""
    return max(0, min(QUEUE_DELAY_MAX_SECONDS, math.floor(early_seconds)))
