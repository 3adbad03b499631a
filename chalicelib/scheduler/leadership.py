"""Becoming, being and ceasing to be the one who schedules a shard, within one invocation (scheduler.md 5.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from ..cloud.ports import LeaseTable
from ..database import Database, Transaction
from ..kernel.clock import Clock
from ..kernel.ids import IdSource
from ..kernel.limits import LEASE_MARGIN_SECONDS, RENEW_SECONDS, WATCH_LOOK_SECONDS
from ..leases.fence import Fence, Fenced, bump
from ..leases.shard_lease import FREE, LeaseState, LeaseTaken, ShardLease

Result = TypeVar("Result")


class Leader:
    """The right to write one shard's schedule, until another one has it.

    ``write`` runs an operation in a fenced transaction and raises ``Fenced`` when the right is gone.
    """

    def __init__(self, database: Database, lease: ShardLease, fence: Fence, state: LeaseState, clock: Clock) -> None:
        self.shard = fence.shard
        self.epoch = fence.epoch
        self._database = database
        self._lease = lease
        self._fence = fence
        self._state = state
        self._clock = clock
        self._renewed_at = clock.elapsed_seconds()

    @property
    def wanted(self) -> int:
        """How many wake-ups were asked for, as of the last renewal."""
        return self._state.wanted

    @property
    def observed(self) -> str:
        """What a recovery that found us leading has left for us, as of the last renewal; empty: nothing."""
        return self._state.observed

    def forget_observed(self) -> None:
        """It is dealt with."""
        self._lease.forget_observed(self._state.observed)
        self._state = replace(self._state, observed="")

    def write(self, operation: Callable[[Transaction], Result]) -> Result:
        """Run and commit ``operation`` under our epoch; the lease is renewed before it when that is time."""
        if self._clock.elapsed_seconds() - self._renewed_at >= RENEW_SECONDS:
            self.renew()
        return self._database.write(lambda tx: self._fenced(tx, operation))

    def _fenced(self, tx: Transaction, operation: Callable[[Transaction], Result]) -> Result:
        self._fence.check(tx)
        return operation(tx)

    def renew(self) -> None:
        """Move the counter and learn what is wanted. Raises ``Fenced`` when the lease is another's."""
        try:
            self._state = self._lease.renew()
        except LeaseTaken:
            raise Fenced(f"the lease of shard {self.shard} was taken over") from None
        self._renewed_at = self._clock.elapsed_seconds()

    def release(self, wanted: int | None) -> bool:
        """Give the shard back; ``False`` when a wake-up came since ``wanted``, so that another pass is owed."""
        return self._lease.release(wanted)


class Leadership:
    """How an invocation becomes the leader of a shard."""

    def __init__(self, database: Database, leases: LeaseTable, ids: IdSource, clock: Clock, lease_seconds: int) -> None:
        self._database = database
        self._leases = leases
        self._ids = ids
        self._clock = clock
        self._lease_seconds = lease_seconds

    def lead(self, shard: int, *, watch: bool, observed: str = "") -> Leader | None:
        """Become the leader, or leave a wish with the one who is.

        With ``watch`` (the minute tick) a held lease is observed for as long as it takes to see whether its owner lives,
        and taken over from one that does not. Observation stays within this invocation and on this machine's own clock
        that counts suspension, so that a late or paused observer condemns nobody (S7). ``observed`` goes with the wish:
        what a recovery saw is acted upon by the one who leads, so that neither waits for the other.
        """
        token = self._ids.mint("own")
        lease = ShardLease(self._leases, shard, token)
        state = lease.acquire() or self._want(lease, observed) or (self._watch(lease) if watch else None)
        return None if state is None else self._begin(lease, token, shard, state)

    def _want(self, lease: ShardLease, observed: str) -> LeaseState | None:
        asked = lease.want(observed)
        return lease.acquire() if asked is None or asked.owner == FREE else None

    def _watch(self, lease: ShardLease) -> LeaseState | None:
        first = lease.read()
        until = self._clock.elapsed_seconds() + self._lease_seconds + LEASE_MARGIN_SECONDS
        while first is not None and first.owner != FREE:
            self._clock.sleep(WATCH_LOOK_SECONDS)
            now = lease.read()
            if now is None or now.owner == FREE:
                break
            if (now.owner, now.counter) != (first.owner, first.counter):
                return None
            if self._clock.elapsed_seconds() >= until:
                return lease.take_over(now)
        return lease.acquire()

    def _begin(self, lease: ShardLease, token: str, shard: int, state: LeaseState) -> Leader | None:
        """A new epoch, told to DynamoDB before the first scheduler write under it."""
        try:
            fence = self._database.write(lambda tx: bump(tx, shard, token, state.epoch_seen))
            noted = lease.note_epoch(fence.epoch)
        except LeaseTaken:
            return None
        except Fenced:  # there is no such shard any more: a message of before a reshard
            lease.release(None)
            return None
        except Exception:
            lease.release(None)
            raise
        return Leader(self._database, lease, fence, noted, self._clock)
