"""The states of the model of leadership, and which of them count as one.

Numbers that only grow are renumbered after every step (``canonical``) without changing what any later step can find. So
the model is finite although invocations, crashes, pauses, lost replies and failovers are not limited in number.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

# Who holds something: an actor's number, or one of these. An acquisition that has ended is GONE, never an actor.
FREE, GONE = -1, -2
# Whether a recorded want waits for a pass: not, for one that has to begin, or (an actor's number) for that actor's.
# A carrier that crashed leaves its wake-up to the next minute tick.
NOTHING, RECORDED, LEFT_TO_MINUTE_TICK = -1, -2, -3
# For a number: none is kept, or an epoch that no row can hold again.
NO_NUMBER, REPLACED = -1, -2

# Where an invocation stands: what it does next.
IDLE, ACQUIRE, WANT, WATCH, TAKE_OVER = "idle", "acquire", "want", "watch", "take over"
BUMP, RECORD_EPOCH = "bump", "record epoch"
START_PASS, BEGIN, CHECK, COMMIT, COMMITTED = "start pass", "begin", "check", "commit", "committed"
RELEASE, SEND_MESSAGE, RELEASE_LATE = "release", "send message", "release after sending"

# Where an acquisition is complete: lease, epoch and ``epoch_seen``.
MAY_WRITE = frozenset({START_PASS, BEGIN, CHECK, COMMIT, COMMITTED, RELEASE})

MINUTE, DUE, MESSAGE = "minute tick", "due tick", "message"


class Actor(NamedTuple):
    """One invocation. Numbers are kept only while they matter."""

    at: str = IDLE
    kind: str = ""
    paused: bool = False
    observed_counter: int = NO_NUMBER
    wanted_read: int = NO_NUMBER
    epoch_seen: int = NO_NUMBER
    epoch: int = NO_NUMBER


class Row(NamedTuple):
    """The row of ``scheduler_shards``; the owner is the acquisition that wrote it."""

    epoch: int
    owner: int


class State(NamedTuple):
    """The DynamoDB item, the row, the row before its last bump, the actors; then what only the checker knows."""

    owner: int = FREE
    counter: int = 0
    wanted: int = 0
    epoch_seen: int = 0
    row: Row = Row(0, GONE)
    row_before: Row = Row(0, GONE)
    actors: tuple[Actor, Actor] = (Actor(), Actor())
    message: bool = False
    want: int = NOTHING
    highest_epoch: int = 0
    broken: str = ""


def waits_for_pass(want: int) -> bool:
    """Whether a recorded want has a pass to come and somebody to begin it."""
    return want not in {NOTHING, LEFT_TO_MINUTE_TICK}


def canonical(state: State) -> State:
    """One state for all that differ only in what no later step can tell apart, or in which actor is which.

    Numbers that do not matter any more are forgotten. Counters are only compared for equality. Epochs are also compared
    by ``max`` and ``+ 1``, so gaps of one between them are kept, and larger ones become two.
    """
    first, second = _relevant(state, 0), _relevant(state, 1)
    new = _with_small_gaps(state, first, second)
    # Without a want a message is a due tick like any other, and these may come at any time.
    message = state.message and waits_for_pass(state.want)
    before = state.row_before
    # Only an actor whose bump has no reply yet asks who wrote a row that a failover brought back.
    asked = before.owner != GONE and state.actors[before.owner].at == BUMP
    kept = State(
        state.owner,
        1,
        1,
        new[state.epoch_seen],
        Row(new[state.row.epoch], state.row.owner),
        Row(new[before.epoch], before.owner if asked else GONE),
        (_renumbered(first, new), _renumbered(second, new)),
        message,
        state.want,
        new[state.highest_epoch],
        state.broken,
    )
    if kept.actors[0] == kept.actors[1]:
        return min(kept, _swapped(kept))
    return kept if kept.actors[0] < kept.actors[1] else _swapped(kept)


def _relevant(state: State, me: int) -> Actor:
    """The actor without numbers that it will not use."""
    at, kind, paused, observed, wanted, seen, epoch = state.actors[me]
    rows = (state.row.epoch, state.row_before.epoch)
    # A row goes back by one bump at most, so what lies below that never comes again.
    if at in MAY_WRITE and epoch < min(rows):
        epoch = REPLACED
    # Only the owner compares what it read of ``wanted``, and a pass that starts reads it anew.
    reads_wanted = state.owner == me and at != START_PASS
    return Actor(
        at,
        DUE if kind == MESSAGE and not waits_for_pass(state.want) else kind,
        paused,
        NO_NUMBER if observed == NO_NUMBER else int(observed == state.counter),
        int(wanted == state.wanted) if reads_wanted and wanted != NO_NUMBER else NO_NUMBER,
        max(seen, min(rows)) if at == BUMP else NO_NUMBER,
        epoch,
    )


def _with_small_gaps(state: State, *actors: Actor) -> dict[int, int]:
    numbers = {state.epoch_seen, state.row.epoch, state.row_before.epoch, state.highest_epoch}
    for actor in actors:
        numbers.update((actor.epoch, actor.epoch_seen))
    known = sorted(numbers - {NO_NUMBER, REPLACED})
    new = {NO_NUMBER: NO_NUMBER, REPLACED: REPLACED, known[0]: 0}
    for low, high in pairwise(known):
        new[high] = new[low] + min(high - low, 2)
    return new


def _renumbered(actor: Actor, new: Mapping[int, int]) -> Actor:
    at, kind, paused, observed, wanted, seen, epoch = actor
    return Actor(at, kind, paused, observed, wanted, new[seen], new[epoch])


def _swapped(state: State) -> State:
    return state._replace(
        owner=_other(state.owner),
        row=Row(state.row.epoch, _other(state.row.owner)),
        row_before=Row(state.row_before.epoch, _other(state.row_before.owner)),
        want=_other(state.want),
        actors=(state.actors[1], state.actors[0]),
    )


def _other(holder: int) -> int:
    return 1 - holder if holder >= 0 else holder
