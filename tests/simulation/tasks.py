"""ECS: which tasks run, what a describe says of them (at times nothing, at times what was true before), and their events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from chalicelib.kernel.errors import Unavailable
from tests.simulation.board import Board
from tests.simulation.queues import SimulatedQueues

_EMPTY, _OLD, _EVENT_LOST = 0.25, 0.25, 0.3
_EVENT_DELAYS = (0, 0, 5, 60)


def _no_answer() -> Exception:
    return Unavailable("ECS does not answer")


class SimulatedTasks:
    """``cloud.ports.TaskService``, and what starts and stops tasks."""

    def __init__(self, board: Board, queues: SimulatedQueues) -> None:
        self._board = board
        self._queues = queues
        self._statuses: dict[str, str] = {}

    def start(self, arn: str) -> None:
        """A task runs."""
        self._statuses[arn] = "RUNNING"

    def stop(self, arn: str) -> None:
        """A task has stopped: that is told by an event, which may be lost, doubled or late."""
        self._statuses[arn] = "STOPPED"
        if self._queues.calm or self._board.current.chance.random() >= _EVENT_LOST:
            self.tell(arn, "STOPPED")

    def tell(self, arn: str, last_status: str) -> None:
        """The event of a change; one that is only wanted stopped still runs."""
        detail = {"taskArn": arn, "lastStatus": last_status, "desiredStatus": "STOPPED"}
        event = {"detail-type": "ECS Task State Change", "detail": detail}
        try:
            delay = self._board.current.chance.choice(_EVENT_DELAYS)
            self._queues.send("task-events", json.dumps(event), delay_seconds=delay)
        except Unavailable:
            self._board.trace.add("event lost", arn)

    def last_statuses(self, task_arns: Sequence[str]) -> Mapping[str, str]:
        """What ECS knows, or says it knows."""
        with self._board.operation("describe", _no_answer):
            if self._happens(_EMPTY):
                return {}
            if self._happens(_OLD):
                return dict.fromkeys(task_arns, "RUNNING")
            return {arn: self._statuses[arn] for arn in task_arns if arn in self._statuses}

    def _happens(self, probability: float) -> bool:
        return not self._queues.calm and self._board.current.chance.random() < probability
