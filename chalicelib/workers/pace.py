"""How long a worker waits for what, and whether its platform lets it (scheduler.md 8.1, 8.5)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..kernel.errors import UsageError
from ..kernel.limits import (
    CLOSE_SECONDS,
    ECS_STOP_DEFAULT_SECONDS,
    FOREIGN_MESSAGE_SECONDS,
    LAST_CALL_SECONDS,
    LAST_JOIN_SECONDS,
    QUEUE_WAIT_SECONDS,
    REPORT_EVERY_SECONDS,
    STOP_GRACE_SECONDS,
    WORKER_RETRY_MAX_SECONDS,
)
from .placement import METADATA
from .process import Graces


@dataclass(frozen=True, slots=True)
class Pace:
    """The waits of a worker, in seconds; a test makes it quick."""

    graces: Graces = field(default_factory=Graces)
    stop_seconds: float = STOP_GRACE_SECONDS
    queue_wait_seconds: int = QUEUE_WAIT_SECONDS
    report_seconds: float = REPORT_EVERY_SECONDS
    foreign_seconds: int = FOREIGN_MESSAGE_SECONDS
    retry_max_seconds: float = WORKER_RETRY_MAX_SECONDS
    last_call_seconds: float = LAST_CALL_SECONDS
    last_join_seconds: float = LAST_JOIN_SECONDS

    @property
    def drain_seconds(self) -> int:
        """The longest time from SIGTERM to the end of the process.

        Runs may finish; then they are interrupted, killed and reported; a last call is left behind; the last beat and
        the deletion of the lease item are bounded by their own connection.
        """
        waits = self.stop_seconds + self.graces.total_seconds + self.last_call_seconds + self.last_join_seconds
        return math.ceil(waits + CLOSE_SECONDS)


def check_stop_time(pace: Pace, platform_stop_seconds: int, environment: Mapping[str, str]) -> None:
    """Refuse to start when the platform would kill the worker in the middle of its drain.

    ``platform_stop_seconds`` is what the platform gives between SIGTERM and SIGKILL, 0 when nobody has said; an ECS task
    gives 30 s unless its definition says otherwise.
    """
    given = platform_stop_seconds or (ECS_STOP_DEFAULT_SECONDS if METADATA in environment else 0)
    if given and pace.drain_seconds > given:
        raise UsageError.of_field(
            "TIDEMILL_PLATFORM_STOP_SECONDS",
            f"this worker needs up to {pace.drain_seconds} s to stop, but its platform kills it after {given} s; give it "
            "more (stopTimeout of the container, at most 120 s on Fargate) and say so here, or lower "
            "TIDEMILL_STOP_GRACE_SECONDS",
        )
