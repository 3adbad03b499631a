"""The model of lease, epoch and take-over (scheduler.md 5.5), written to be read beside it.

Two actors are scheduler invocations on one shard. Each remote call is one step: it takes effect and its reply arrives,
or it takes effect and the reply is lost, and then the actor does what it does when it calls again. Between two steps
anything else may happen, so a slow actor needs no step of its own; ``paused`` is an actor so slow that its lease runs
out. An observer finds a lease expired only while its holder is paused or gone, and the take-over that follows is a
step of its own, so that the holder may wake up in between.

Start reading at ``leadership_state.py``: the states. Here are the steps, and then the rules that every state is held to.
``Rules`` are the parts of the protocol that can be taken out, to see that the checker then finds what breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.model.explorer import Step
from tests.model.leadership_state import (
    ACQUIRE,
    BEGIN,
    BUMP,
    CHECK,
    COMMIT,
    COMMITTED,
    DUE,
    FREE,
    GONE,
    IDLE,
    LEFT_TO_MINUTE_TICK,
    MAY_WRITE,
    MESSAGE,
    MINUTE,
    NO_NUMBER,
    NOTHING,
    RECORD_EPOCH,
    RECORDED,
    RELEASE,
    RELEASE_LATE,
    SEND_MESSAGE,
    START_PASS,
    TAKE_OVER,
    WANT,
    WATCH,
    Actor,
    Row,
    State,
    canonical,
    waits_for_pass,
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol; each ``False`` takes one part out."""

    fence_is_read: bool = True
    row_count_is_checked: bool = True
    advisory_lock: bool = True
    share_lock: bool = True
    epoch_is_bumped: bool = True
    epoch_seen_counts: bool = True
    epoch_seen_needs_ownership: bool = True
    own_success_is_looked_up: bool = True
    expiry_is_observed: bool = True
    expired_lease_is_taken_over: bool = True
    release_needs_wanted_unmoved: bool = True
    message_is_sent_after_release: bool = True


Steps = Iterator[Step[State]]


class Leadership:
    """The steps of the model under ``rules``. The first state is ``State()``: no lease, no epoch, nobody there."""

    def __init__(self, rules: Rules, *, database_fails_over: bool = True) -> None:
        self.rules = rules
        self._database_fails_over = database_fails_over
        self._next: Mapping[str, Callable[[State, int], Steps]] = {
            IDLE: _invoked,
            ACQUIRE: self._acquire,
            WANT: _record_want,
            WATCH: self._watch,
            TAKE_OVER: self._take_over,
            BUMP: self._bump,
            RECORD_EPOCH: self._record_epoch,
            START_PASS: _start_pass,
            BEGIN: _begin,
            CHECK: self._check,
            COMMIT: _commit,
            COMMITTED: self._go_on_or_stop,
            RELEASE: self._release,
            SEND_MESSAGE: _send_message,
            RELEASE_LATE: _release_late,
        }

    def steps_from(self, state: State) -> Steps:
        """Every next step, each with its state in canonical numbers."""
        for step in self._steps(state):
            yield Step(step.action, canonical(step.state), step.fault)

    def _steps(self, state: State) -> Steps:
        if self._database_fails_over:
            yield from _failovers(state)
        for me, actor in enumerate(state.actors):
            if not actor.paused:
                yield from self._next[actor.at](state, me)
            yield from _actor_faults(state, me)

    # --- the lease

    def _acquire(self, state: State, me: int) -> Steps:
        if state.owner == FREE:
            yield from _take("acquire", state, me)
        elif state.owner == me and self.rules.own_success_is_looked_up:
            yield Step("find own acquire", _acquired(state, me))
        else:
            yield Step("find lease held", _moved(state, me, at=WANT))

    def _watch(self, state: State, me: int) -> Steps:
        actor = state.actors[me]
        if state.owner == FREE:
            yield Step("see lease free", _moved(state, me, at=ACQUIRE, observed_counter=NO_NUMBER))
        elif state.counter != actor.observed_counter:
            yield Step("see holder alive", _ended(state, me))
        elif self.rules.expired_lease_is_taken_over and (_is_silent(state) or not self.rules.expiry_is_observed):
            yield Step("see lease expired", _moved(state, me, at=TAKE_OVER))

    def _take_over(self, state: State, me: int) -> Steps:
        if state.owner == me and self.rules.own_success_is_looked_up:
            yield Step("find own take-over", _acquired(state, me))
        elif state.owner != FREE and state.counter == state.actors[me].observed_counter:
            yield from _take("take over", state, me)
        elif state.owner == FREE:
            yield Step("find lease freed", _moved(state, me, at=ACQUIRE, observed_counter=NO_NUMBER))
        else:
            yield Step("find lease moved", _ended(state, me))

    # --- the epoch

    def _bump(self, state: State, me: int) -> Steps:
        if state.row.owner == me:
            yield Step("find own bump", _bumped(state, me, state.row.epoch))
        elif not self._is_locked(state):
            seen = state.actors[me].epoch_seen if self.rules.epoch_seen_counts else 0
            epoch = max(state.row.epoch, seen) + 1 if self.rules.epoch_is_bumped else state.row.epoch
            after = state._replace(row=Row(epoch, me), row_before=state.row)
            yield Step("bump", _bumped(after, me, epoch))
            yield Step("bump, reply lost", after, fault=True)

    def _is_locked(self, state: State) -> bool:
        """Whether an open transaction keeps the bump waiting."""
        return any(
            (self.rules.advisory_lock and actor.at in {CHECK, COMMIT})
            or (self.rules.share_lock and self._has_row_lock(state, actor))
            for actor in state.actors
        )

    def _has_row_lock(self, state: State, actor: Actor) -> bool:
        return self.rules.fence_is_read and actor.at == COMMIT and actor.epoch == state.row.epoch

    def _record_epoch(self, state: State, me: int) -> Steps:
        if state.owner != me and self.rules.epoch_seen_needs_ownership:
            yield Step("find lease lost", _ended(state, me))
            return
        epoch = state.actors[me].epoch
        rises = epoch > state.highest_epoch or not self.rules.epoch_is_bumped
        broken = state.broken or ("" if rises else "an acquisition did not raise the epoch")
        recorded = state._replace(epoch_seen=epoch)
        yield Step("record epoch", _moved(recorded._replace(highest_epoch=epoch, broken=broken), me, at=START_PASS))
        yield Step("record epoch, reply lost", recorded, fault=True)

    def _check(self, state: State, me: int) -> Steps:
        is_current = state.row.epoch == state.actors[me].epoch
        if is_current or not (self.rules.fence_is_read and self.rules.row_count_is_checked):
            yield Step("check", _moved(state, me, at=COMMIT))
        else:
            yield Step("fenced", _ended(state, me, by_fault=True))

    # --- the end of a pass

    def _go_on_or_stop(self, state: State, me: int) -> Steps:
        """After a commit: the next batch, the end of the pass, or the time limit."""
        if state.owner == me:
            yield from _call("renew", state._replace(counter=state.counter + 1), me, at=BEGIN)
        else:
            yield Step("find renewal refused", _ended(state, me))
        done = state._replace(want=NOTHING) if state.want == me else state
        yield Step("complete pass", _moved(done, me, at=RELEASE))
        yield from self._stop_at_time_limit(state, me)

    def _release(self, state: State, me: int) -> Steps:
        moved = state.wanted != state.actors[me].wanted_read
        if state.owner != me:
            yield Step("find lease released or lost", _ended(state, me))
        elif moved and self.rules.release_needs_wanted_unmoved:
            yield Step("find wanted moved", _moved(state, me, at=START_PASS))
        else:
            freed = state._replace(owner=FREE)
            yield Step("release", _ended(freed, me))
            yield Step("release, reply lost", freed, fault=True)
        yield from self._stop_at_time_limit(state, me)

    def _stop_at_time_limit(self, state: State, me: int) -> Steps:
        if self.rules.message_is_sent_after_release:
            freed = state._replace(owner=FREE) if state.owner == me else state
            yield Step("release at time limit", _moved(freed, me, at=SEND_MESSAGE))
        else:
            yield Step("send message at time limit", _moved(state._replace(message=True), me, at=RELEASE_LATE))


def _invoked(state: State, me: int) -> Steps:
    for kind in (MINUTE, DUE):
        yield Step(kind, _moved(state, me, at=ACQUIRE, kind=kind))
    if state.message:
        yield Step("message arrives", _moved(state._replace(message=False), me, at=ACQUIRE, kind=MESSAGE))


def _record_want(state: State, me: int) -> Steps:
    wanted = state._replace(wanted=state.wanted + 1)
    if state.owner == FREE:
        yield from _call("want, lease free", wanted, me, at=ACQUIRE)
        return
    recorded = wanted._replace(want=RECORDED)
    if state.actors[me].kind == MINUTE:
        yield from _call("want, then watch", recorded, me, at=WATCH, observed_counter=state.counter)
    else:
        yield Step("want, then end", _ended(recorded, me))
        yield Step("want, reply lost", recorded, fault=True)


def _start_pass(state: State, me: int) -> Steps:
    """Renew, and read ``wanted``: what was wanted up to here is served by this pass."""
    if state.owner != me:
        yield Step("find renewal refused", _ended(state, me))
        return
    renewed = state._replace(counter=state.counter + 1)
    served = renewed._replace(want=NOTHING if state.want == NOTHING else me)
    yield Step("start pass", _moved(served, me, at=BEGIN, wanted_read=state.wanted))
    yield Step("start pass, reply lost", renewed, fault=True)


def _begin(state: State, me: int) -> Steps:
    yield Step("begin", _moved(state, me, at=CHECK))


def _commit(state: State, me: int) -> Steps:
    judged = state._replace(broken="a commit under a replaced epoch") if _is_stale(state, me) else state
    yield Step("commit", _moved(judged, me, at=COMMITTED))
    # What a transaction of a pass writes has unique keys, so it is simply made again.
    yield Step("commit, reply lost", _moved(judged, me, at=BEGIN), fault=True)


def _is_stale(state: State, me: int) -> bool:
    """Whether the row holds another epoch, or another acquisition that may write under the same one.

    A bump that is never recorded in ``epoch_seen`` may repeat a number that a failover lost; nobody writes under it.
    """
    writer = state.row.owner
    replaced = writer not in {me, GONE} and state.actors[writer].at in MAY_WRITE
    return replaced or state.row.epoch != state.actors[me].epoch


def _send_message(state: State, me: int) -> Steps:
    yield Step("send message", _ended(state._replace(message=True), me))
    yield Step("send message, reply lost", state._replace(message=True), fault=True)


def _release_late(state: State, me: int) -> Steps:
    yield Step("release after sending", _ended(state._replace(owner=FREE) if state.owner == me else state, me))


# --- faults


def _failovers(state: State) -> Steps:
    """A failover ends open transactions and may lose the last bump, with all that was committed after it."""
    actors = tuple(actor._replace(at=BEGIN) if actor.at in {CHECK, COMMIT} else actor for actor in state.actors)
    kept = state._replace(actors=(actors[0], actors[1]))
    yield Step("failover", kept, fault=True)
    yield Step("failover that loses the last bump", kept._replace(row=state.row_before), fault=True)


def _actor_faults(state: State, me: int) -> Steps:
    actor = state.actors[me]
    if actor.at == IDLE:
        return
    yield Step("crash", _crashed(state, me), fault=True)
    if actor.paused:
        # Nothing may be counted on a resumption; the database ends a transaction that stands still.
        yield Step("resume", _moved(state, me, paused=False), fault=True)
        if actor.at in {CHECK, COMMIT}:
            yield Step("idle transaction ended", _moved(state, me, at=BEGIN))
    elif state.owner == me and not any(other.paused for other in state.actors):
        yield Step("pause", _moved(state, me, paused=True), fault=True)


def _crashed(state: State, me: int) -> State:
    """A message that was not acknowledged comes again; one that was not yet sent is lost."""
    redelivered = state._replace(message=state.message or state.actors[me].kind == MESSAGE)
    after = _ended(redelivered, me, by_fault=True)
    return after._replace(want=LEFT_TO_MINUTE_TICK) if _wake_up_is_lost(after) else after


# --- what is checked


def broken_rule(state: State) -> str | None:
    """Why ``state`` must not be reachable, if so."""
    return state.broken or ("a wake-up was lost" if _wake_up_is_lost(state) else None)


def has_working_leader(state: State) -> bool:
    """Whether an actor that is not paused holds lease and epoch and is about to commit."""
    return any(
        actor.at == COMMIT and not actor.paused and state.owner == me and state.row.epoch == actor.epoch
        for me, actor in enumerate(state.actors)
    )


def has_no_want(state: State) -> bool:
    """Whether every recorded want was followed by a whole pass."""
    return state.want == NOTHING


def _wake_up_is_lost(state: State) -> bool:
    """A want waits, the lease is free, and nobody is on the way who will find that out before the next minute tick."""
    on_the_way = {ACQUIRE, WANT, WATCH, TAKE_OVER, SEND_MESSAGE}
    return (
        waits_for_pass(state.want)
        and state.owner == FREE
        and not state.message
        and not any(actor.at in on_the_way for actor in state.actors)
    )


# --- changing states


def _call(action: str, after: State, me: int, **changes: Any) -> Steps:
    """A remote call that took effect: its reply arrives, or the actor does not know and stands where it stood."""
    yield Step(action, _moved(after, me, **changes))
    yield Step(f"{action}, reply lost", after, fault=True)


def _take(action: str, state: State, me: int) -> Steps:
    taken = state._replace(owner=me, counter=state.counter + 1)
    yield Step(action, _acquired(taken, me))
    yield Step(f"{action}, reply lost", taken, fault=True)


def _moved(state: State, me: int, **changes: Any) -> State:
    first, second = state.actors
    if me == 0:
        return state._replace(actors=(first._replace(**changes), second))
    return state._replace(actors=(first, second._replace(**changes)))


def _acquired(state: State, me: int) -> State:
    return _moved(state, me, at=BUMP, kind="", epoch_seen=state.epoch_seen, observed_counter=NO_NUMBER)


def _bumped(state: State, me: int, epoch: int) -> State:
    return _moved(state, me, at=RECORD_EPOCH, epoch=epoch, epoch_seen=NO_NUMBER)


def _ended(state: State, me: int, *, by_fault: bool = False) -> State:
    """The invocation ends and its token with it. Only a crash and the fence may leave the lease behind."""
    left_behind = state.owner == me and not by_fault
    first, second = (Actor() if number == me else actor for number, actor in enumerate(state.actors))
    return state._replace(
        owner=GONE if state.owner == me else state.owner,
        row=state.row._replace(owner=GONE) if state.row.owner == me else state.row,
        row_before=state.row_before._replace(owner=GONE) if state.row_before.owner == me else state.row_before,
        want=RECORDED if state.want == me else state.want,
        actors=(first, second),
        broken=state.broken or ("an invocation took its own lease for another's" if left_behind else ""),
    )


def _is_silent(state: State) -> bool:
    return state.owner == GONE or (state.owner >= 0 and state.actors[state.owner].paused)
