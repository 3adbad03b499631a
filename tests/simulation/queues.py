"""SQS: unordered, with delay, visibility time-out, duplicates, lost replies, a dead-letter queue, and at times a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chalicelib.cloud.ports import QueueMessage
from chalicelib.cloud.provision import DEAD, QUEUES
from chalicelib.kernel.errors import Unavailable
from tests.simulation.board import Board

_DUPLICATED, _LATE, _VERY_LATE = 0.2, 0.1, 0.01
_LATE_SECONDS, _VERY_LATE_SECONDS = 90.0, 12 * 3_600.0
_DEAD_VISIBLE_SECONDS = 30
# Fewer than the product allows, so that a short history has dead letters.
_RECEIVES = 2


@dataclass(slots=True)
class _Held:
    number: int
    body: str
    visible_at: float
    receives: int = 0


def _no_answer() -> Exception:
    return Unavailable("SQS does not answer")


class SimulatedQueues:
    """``cloud.ports.QueueService``. ``calm`` ends duplicates, delays and disorder."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._queues: dict[str, list[_Held]] = {}
        self._count = 0
        self.calm = False
        self.losing = 0.01
        self.on_send: list[Callable[[str, str, str], None]] = []

    def check(self, queue: str) -> None:
        """Always there."""

    def send(self, queue: str, body: str, *, delay_seconds: int = 0) -> None:
        with self._board.operation("send", _no_answer):
            for told in self.on_send:
                told(self._board.current.name, queue, body)
            self._put(queue, body, delay_seconds)
            if self._happens(_DUPLICATED):
                self._put(
                    queue, body, delay_seconds + self._board.current.chance.choice((0.0, 5.0, 20.0, _LATE_SECONDS))
                )

    def send_many(self, queue: str, bodies: Sequence[str]) -> None:
        for body in bodies:
            self.send(queue, body)

    def receive(self, queue: str, *, wait_seconds: int, maximum: int = 1) -> Sequence[QueueMessage]:
        now = self._board.clock.elapsed_seconds()
        self._bury(queue, now)
        visible = [held for held in self._queues.get(queue, []) if held.visible_at <= now]
        if not self.calm:
            self._board.current.chance.shuffle(visible)
        taken = visible[:maximum]
        for held in taken:
            held.visible_at = now + self._visible_seconds(queue)
            held.receives += 1
        return [QueueMessage(held.body, str(held.number), held.receives) for held in taken]

    def delete(self, queue: str, receipt: str) -> None:
        with self._board.operation("delete", _no_answer):
            self._queues[queue] = [held for held in self._queues.get(queue, []) if str(held.number) != receipt]

    def hide(self, queue: str, receipt: str, seconds: int) -> None:
        with self._board.operation("hide", _no_answer):
            for held in self._queues.get(queue, []):
                if str(held.number) == receipt:
                    held.visible_at = self._board.clock.elapsed_seconds() + seconds

    def waiting(self, queue: str) -> int:
        """How many messages a queue holds, visible or not."""
        return len(self._queues.get(queue, []))

    def next_visible_at(self, queue: str) -> float | None:
        """When the next message of a queue can be received."""
        return min((held.visible_at for held in self._queues.get(queue, [])), default=None)

    def _put(self, queue: str, body: str, delay_seconds: float) -> None:
        if self._happens(self.losing):
            self._board.trace.add("message lost", queue)
            return
        if self._happens(_VERY_LATE):
            delay_seconds += self._board.current.chance.random() * _VERY_LATE_SECONDS
        elif self._happens(_LATE):
            delay_seconds += self._board.current.chance.random() * _LATE_SECONDS
        self._count += 1
        visible_at = self._board.clock.elapsed_seconds() + delay_seconds
        self._queues.setdefault(queue, []).append(_Held(self._count, body, visible_at))

    def _bury(self, queue: str, now: float) -> None:
        """A message that was received too often goes to the dead-letter queue, as SQS does at the next receive."""
        if queue not in QUEUES:
            return
        limit = min(QUEUES[queue][1], _RECEIVES)
        waiting = self._queues.get(queue, [])
        dead = [held for held in waiting if held.visible_at <= now and held.receives >= limit]
        self._queues[queue] = [held for held in waiting if held not in dead]
        self._queues.setdefault(queue + DEAD, []).extend(_Held(held.number, held.body, now) for held in dead)

    def _visible_seconds(self, queue: str) -> int:
        return QUEUES[queue][0] if queue in QUEUES else _DEAD_VISIBLE_SECONDS

    def _happens(self, probability: float) -> bool:
        return not self.calm and self._board.current.chance.random() < probability
