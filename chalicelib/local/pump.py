"""Threads that stand in for AWS: EventBridge's minute rule, and the event sources of the queues.

They call the same handlers that Lambda calls. A message is deleted when its handler returns and left for redelivery
when it raises, as Lambda does with a batch size of 1; SQS itself moves it to the dead-letter queue after its last
receive. A failing pass or handler is said once, backs off and goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..cloud.ports import QueueMessage, QueueService
from ..kernel.clock import Clock
from .troubles import Say, Troubles

_POLL_SECONDS = 2
_WAIT_MAX_SECONDS = 1.0
_BACK_OFF_FIRST_SECONDS = 0.2
_BACK_OFF_MAX_SECONDS = 5.0
_JOIN_SECONDS = 30.0

Handler = Callable[[dict[str, Any]], object]


@dataclass(frozen=True, slots=True)
class EventSource:
    """A queue by its short name, and what Lambda would call with each of its messages.

    Of up to ``together`` waiting messages those that say the same are one call: on AWS the others, at the same moment,
    would find that somebody does what they ask for, and end.
    """

    queue: str
    handler: Handler
    together: int = 1


class EventPump:
    """All the threads. ``minute`` is the handler of the minute rule.

    ``start`` runs the first minute tick at once; ``stop`` waits for handlers in progress.
    """

    def __init__(
        self,
        queues: QueueService,
        minute: Callable[[], object],
        sources: Sequence[EventSource],
        *,
        clock: Clock,
        say: Say,
    ) -> None:
        self._queues = queues
        self._troubles = Troubles(say)
        self._stop = threading.Event()
        self._minutes = _MinuteRule(minute, clock, self._troubles, self._stop)
        self._threads = [threading.Thread(target=self._minutes.run, name="pump-minute", daemon=True)]
        self._threads += [
            threading.Thread(target=self._run_source, args=(source,), name=f"pump-{source.queue}", daemon=True)
            for source in sources
        ]

    def start(self) -> None:
        """Start every thread."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Take no further message and start no further pass; return when all threads ended (bounded)."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_JOIN_SECONDS)

    def _run_source(self, source: EventSource) -> None:
        part = f"reading the queue {source.queue}"
        while not self._stop.is_set():
            try:
                messages = self._queues.receive(source.queue, wait_seconds=_POLL_SECONDS, maximum=source.together)
                for same in _by_body(messages):
                    self._deliver(source, same)
            except Exception as error:  # noqa: BLE001  # a thread must outlive anything
                if not self._stop.is_set():
                    self._back_off(self._troubles.failed(part, error))
            else:
                self._troubles.worked(part)

    def _deliver(self, source: EventSource, same: Sequence[QueueMessage]) -> None:
        part = f"a message of the queue {source.queue}"
        try:
            source.handler(sqs_event(source.queue, same[0]))
        except Exception as error:  # noqa: BLE001  # as Lambda: the message comes again
            self._back_off(self._troubles.failed(part, error))
            return
        self._troubles.worked(part)
        for message in same:
            self._queues.delete(source.queue, message.receipt)

    def _back_off(self, failures: int) -> None:
        self._stop.wait(back_off_seconds(failures))


class _MinuteRule:
    """A tick at start and at each full minute of the wall clock."""

    def __init__(self, minute: Callable[[], object], clock: Clock, troubles: Troubles, stop: threading.Event) -> None:
        self._minute = minute
        self._clock = clock
        self._troubles = troubles
        self._stop = stop

    def run(self) -> None:
        due = self._clock.now()
        while not self._stop.is_set():
            left = (due - self._clock.now()).total_seconds()
            if left > 0:
                # In short steps: the wall clock may be set, and the machine may sleep.
                self._stop.wait(min(left, _WAIT_MAX_SECONDS))
            elif self._attempt():
                due = next_minute(self._clock.now())

    def _attempt(self) -> bool:
        part = "the minute tick"
        try:
            self._minute()
        except Exception as error:  # noqa: BLE001  # the thread must outlive a killed database
            self._stop.wait(back_off_seconds(self._troubles.failed(part, error)))
            return False
        self._troubles.worked(part)
        return True


def _by_body(messages: Sequence[QueueMessage]) -> list[list[QueueMessage]]:
    """Messages that say the same, together, in the order in which they came."""
    found: dict[str, list[QueueMessage]] = {}
    for message in messages:
        found.setdefault(message.body, []).append(message)
    return list(found.values())


def next_minute(now: datetime) -> datetime:
    """The first full minute after ``now``."""
    return now.replace(second=0, microsecond=0) + timedelta(minutes=1)


def back_off_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return float(min(_BACK_OFF_FIRST_SECONDS * 2 ** min(failures - 1, 10), _BACK_OFF_MAX_SECONDS))


def sqs_event(queue: str, message: QueueMessage) -> dict[str, Any]:
    """The event that Lambda gets for one message."""
    record: Mapping[str, Any] = {
        "messageId": message.receipt[:36],
        "receiptHandle": message.receipt,
        "body": message.body,
        "attributes": {"ApproximateReceiveCount": str(message.receive_count)},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:local:000000000000:{queue}",
        "awsRegion": "local",
    }
    return {"Records": [dict(record)]}
