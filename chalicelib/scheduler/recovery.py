"""The recovery pass of one shard: who watches workers, and what their silence does (scheduler.md 9).

It has a queue of its own, because it waits for a whole lease, and needs no slot of what it recovers. It leads the shard
only when there is something to write; where another invocation leads, what was seen is left for that one.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from ..cloud.ports import LeaseTable
from ..database import Database
from ..dispatch.service import DispatchService
from ..kernel.canonical import canonical_json
from ..kernel.clock import Clock
from ..kernel.errors import TidemillError
from ..kernel.limits import (
    OBSERVED_BOOTS_MAX,
    OUTBOX_PER_BATCH,
    RECOVERY_WATCH_SECONDS,
    STOP_LOOK_SECONDS,
    VISIT_MARGIN_SECONDS,
    VISIT_SECONDS,
)
from ..leases import revoke
from ..leases.boots import WHOLE_BOOT, key_of
from ..leases.fence import Fenced
from ..leases.lowering import all_shards, partitions_of
from ..leases.observation import BootItem, Look, Observation, read_boots
from ..runs.losing import EndedClaim, Losses, WatchedBoot
from ..runs.service import RunService
from .leadership import Leader, Leadership
from .passing import OutOfTime

LOG = logging.getLogger("tidemill.recovery")
# A counter that an item never has: there was no item.
_NO_ITEM = -1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was observed, by boot: its counter (-1: it has no item). It stays true while the counter is the same.

    ``silent`` did not move for a whole lease, ``heard`` moved although runs of theirs are marked, ``proved`` have marked
    runs whose process has ended; ``partitions`` says where the items of all these are.
    """

    silent: Mapping[str, int] = field(default_factory=dict)
    heard: Mapping[str, int] = field(default_factory=dict)
    proved: Sequence[str] = ()
    partitions: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.silent or self.heard or self.proved)

    def text(self) -> str:
        """As it is left for another invocation; of too many silent boots the rest is observed again in a minute."""
        kept = dict(sorted(self.silent.items())[:OBSERVED_BOOTS_MAX])
        heard = dict(sorted(self.heard.items())[:OBSERVED_BOOTS_MAX])
        proved = sorted(self.proved)[:OBSERVED_BOOTS_MAX]
        named = {*kept, *heard, *proved}
        partitions = {boot: partition for boot, partition in self.partitions.items() if boot in named}
        return canonical_json(asdict(Verdict(kept, heard, proved, partitions)))


@dataclass(slots=True)
class RecoveryResult:
    """What an invocation did, for logs and tests. ``left`` is true when another invocation is to act on what was seen.

    ``watched`` is ``None`` when no look succeeded.
    """

    shard: int
    watched: int | None = None
    silent: int = 0
    left: bool = False
    lost: int = 0
    heard: int = 0
    ended: list[str] = field(default_factory=list)


class RecoveryService:
    """Recovery of one installation. ``lease_seconds`` is the lease of boots whose item is gone.

    ``close`` ends an observation that is going on, without a conclusion.
    """

    def __init__(
        self,
        database: Database,
        leadership: Leadership,
        leases: LeaseTable,
        *,
        clock: Clock,
        losses: Losses,
        domains: tuple[RunService, DispatchService],
        wake: Callable[[Sequence[int]], None],
        lease_seconds: int,
    ) -> None:
        self._database = database
        self._leadership = leadership
        self._leases = leases
        self._clock = clock
        self._losses = losses
        self._runs, self._dispatch = domains
        self._wake = wake
        self._lease_seconds = lease_seconds
        self._closed = threading.Event()

    def close(self) -> None:
        """Come to an end soon; later calls observe nothing."""
        self._closed.set()

    def recover(self, shard: int) -> RecoveryResult:
        """Watch the boots that the shard serves for a whole lease, and act on what was seen."""
        result, began = RecoveryResult(shard), self._clock.elapsed_seconds()
        partitions = self._partitions(shard)
        self._send_again(shard, partitions)
        verdict = self._observe(partitions, began + RECOVERY_WATCH_SECONDS, result)
        if result.watched == 0 and partitions:
            # Nobody is to be watched any more: the pass that comes raises the hint, which says so.
            self._wake([shard])
        if verdict:
            self._act_as_leader(shard, verdict, result, began + VISIT_SECONDS - VISIT_MARGIN_SECONDS)
        if result.lost:
            self._ask_about_tasks(shard, partitions)
        return result

    def act_on_observed(self, leader: Leader, until: float) -> None:
        """Act on what a recovery has left for whoever leads the shard; at the beginning of a pass."""
        if leader.observed:
            self._act(leader, _read(leader.observed), RecoveryResult(leader.shard), until)
            leader.forget_observed()  # only now: if we end before, whoever leads next does it

    # --- without a lease

    def _partitions(self, shard: int) -> list[int]:
        with self._database.transaction() as tx:
            shards = len(all_shards(tx))
        return partitions_of(shard, shards) if shard < shards else []

    def _send_again(self, shard: int, partitions: Sequence[int]) -> None:
        """What needs no observation; a queue or a table that does not answer holds up nothing else."""
        for step in (
            lambda: self._send_outbox(shard),
            lambda: self._runs.resend_cancels(shard),
            lambda: self._revoke_again(partitions),
            lambda: self._runs.prove_stopped_tasks(partitions),
        ):
            try:
                step()
            except TidemillError as error:
                LOG.warning("recovery of shard %s could not send again: %s", shard, error.detail)

    def _ask_about_tasks(self, shard: int, partitions: Sequence[int]) -> None:
        """The container service may know of a run that was just marked; who was marked before was asked about first."""
        try:
            self._runs.prove_stopped_tasks(partitions)
        except TidemillError as error:
            LOG.warning("recovery of shard %s could not ask about tasks: %s", shard, error.detail)

    def _send_outbox(self, shard: int) -> None:
        while self._dispatch.send_pending(self._database.write, shard) == OUTBOX_PER_BATCH:
            continue

    def _revoke_again(self, partitions: Sequence[int]) -> None:
        """Boots that still work for a claim that has ended: the first word to them may have been lost."""
        boots = read_boots(self._leases, partitions)
        working = {boot: item.working for boot, item in boots.items() if item.working and not item.stopped}
        for claim in self._losses.ended_at_work(working):
            if claim.claim_id not in boots[claim.boot_id].revoked:
                revoke(self._leases, claim.boot_id, claim.partition, claim.claim_id)

    def _observe(self, partitions: Sequence[int], until: float, result: RecoveryResult) -> Verdict:
        """Look until each watched boot is clear, or there is no time left for it: then the next minute looks again."""
        observation = Observation(self._lease_seconds)
        watched: dict[str, WatchedBoot] = {}
        while not self._closed.is_set():
            self._look(partitions, observation, watched)
            if not observation.undecided or not self._wait(observation.look_seconds(), until):
                break
        result.watched, result.silent = observation.watched, len(observation.silent)
        return self._verdict(partitions, observation, watched)

    def _look(self, partitions: Sequence[int], observation: Observation, watched: dict[str, WatchedBoot]) -> None:
        """One look at the store and at the table; both must answer, for either's silence is not the boots'."""
        began = self._clock.elapsed_seconds()
        try:
            now = {boot.boot_id: boot for boot in self._losses.watched(partitions)}
            items = read_boots(self._leases, sorted({boot.partition for boot in now.values()}))
        except TidemillError as error:
            LOG.warning("recovery could not look: %s", error.detail)
            observation.missed()
            return
        watched.clear()
        watched.update(now)
        observation.add(Look(began, self._clock.elapsed_seconds(), {boot: items.get(boot) for boot in now}))

    def _wait(self, seconds: float, until: float) -> bool:
        """Wait for the next look, in short steps; ``False`` when there is no time for it."""
        if self._clock.elapsed_seconds() + seconds > until:
            return False
        steps = max(1, math.ceil(seconds / STOP_LOOK_SECONDS))
        for _ in range(steps):
            if self._closed.is_set():
                return False
            self._clock.sleep(seconds / steps)
        return True

    def _verdict(
        self, partitions: Sequence[int], observation: Observation, watched: Mapping[str, WatchedBoot]
    ) -> Verdict:
        """What is to be done; a boot whose silence is known and that has nothing more to lose is not in it."""
        silent = {
            boot: _NO_ITEM if counter is None else counter
            for boot, counter in observation.silent.items()
            if boot in watched and (watched[boot].unmarked or watched[boot].unstarted)
        }
        heard = {
            boot: counter for boot, counter in observation.moved.items() if boot in watched and watched[boot].marked
        }
        marked = any(boot.marked for boot in watched.values())
        proved = sorted(self._losses.proved(partitions) - set(heard)) if marked or silent else []
        found = {*silent, *heard, *proved}
        return Verdict(silent, heard, proved, {b.boot_id: b.partition for b in watched.values() if b.boot_id in found})

    # --- with it

    def _act_as_leader(self, shard: int, verdict: Verdict, result: RecoveryResult, until: float) -> None:
        """Lead and act, or leave the verdict to the one who leads, as a wish for another pass."""
        left = verdict.text()
        leader = self._leadership.lead(shard, watch=False, observed=left)
        if leader is None:
            result.left = True
            return
        wanted = leader.wanted
        try:
            if leader.observed != left:
                self.act_on_observed(leader, until)
            self._act(leader, verdict, result, until)
            if leader.observed:
                leader.forget_observed()
        except (Fenced, OutOfTime) as reason:  # what is left is seen again in a minute
            LOG.warning("recovery of shard %s ended early: %s %s", shard, type(reason).__name__, reason)
        finally:
            self._release(leader, wanted)

    def _release(self, leader: Leader, wanted: int) -> None:
        """Ticks that found us leading ended with a wish for a pass, which we do not make: a message brings it.

        It is sent after the release: one that came before would find the lease held, and become a wish that nobody reads.
        """
        if not leader.release(wanted):
            leader.release(None)
            self._wake([leader.shard])

    def _act(self, leader: Leader, verdict: Verdict, result: RecoveryResult, until: float) -> None:
        """Marks, then what follows from them; everything is decided again under the lock of each run."""

        def go_on() -> None:
            if self._clock.elapsed_seconds() >= until:
                raise OutOfTime

        silent = self._still_silent(verdict)
        counters = {boot: None if counter == _NO_ITEM else counter for boot, counter in silent.items()}
        result.lost += self._losses.lose(leader.write, counters, go_on)
        result.heard += self._losses.hear(leader.write, verdict.heard, go_on)
        unstarted = self._losses.end_unstarted(leader.write, sorted(silent), go_on)
        partitions = sorted(set(verdict.partitions.values()))
        gone = self._losses.end_proved(leader.write, sorted({*verdict.proved, *self._losses.proved(partitions)}), go_on)
        result.ended += [claim.run_id for claim in (*unstarted, *gone)]
        self._tell(unstarted, gone)

    def _still_silent(self, verdict: Verdict) -> dict[str, int]:
        """Those that have not been heard of since they were observed; a counter never goes back."""
        if not verdict.silent:
            return {}
        items = read_boots(self._leases, sorted({verdict.partitions[boot] for boot in verdict.silent}))
        return {boot: counter for boot, counter in verdict.silent.items() if _counter(items.get(boot)) == counter}

    def _tell(self, unstarted: Sequence[EndedClaim], gone: Sequence[EndedClaim]) -> None:
        """After the commits: revoke what ended, and delete the item of a boot that is gone with its last claim.

        What is lost here is said again by the next recovery, or stays for the TTL to tidy.
        """
        try:
            for claim in unstarted:
                revoke(self._leases, claim.boot_id, claim.partition, claim.claim_id)
            boots = {claim.boot_id: claim.partition for claim in gone}
            for boot, partition in boots.items():
                revoke(self._leases, boot, partition, WHOLE_BOOT)
            for boot in sorted(self._losses.without_claims(sorted(boots))) if boots else ():
                self._leases.remove(*key_of(boot, boots[boot]))
        except TidemillError as error:
            LOG.warning("recovery could not tell a boot: %s", error.detail)


def _counter(item: BootItem | None) -> int:
    return _NO_ITEM if item is None else item.counter


def _read(text: str) -> Verdict:
    """What was left; a text of another release that says it in another way is dropped, for it will be seen again."""
    try:
        read = json.loads(text)
        return Verdict(read["silent"], read["heard"], read["proved"], read["partitions"])
    except (ValueError, KeyError, TypeError):
        return Verdict()
