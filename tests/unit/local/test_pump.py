import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from chalicelib.cloud.ports import QueueMessage
from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.errors import Unavailable
from chalicelib.local.pump import EventPump, EventSource, back_off_seconds, next_minute, sqs_event

BOUND = 10.0
AN_INSTANT = datetime(2026, 3, 29, 1, 59, 59, 999_999, tzinfo=UTC)


class Wall:
    """A wall clock that the test sets; waiting is real."""

    def __init__(self, instant: datetime) -> None:
        self.instant = instant

    def now(self) -> datetime:
        return self.instant

    def elapsed_seconds(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nothing of the pump sleeps, not even {seconds} s")


class MemoryQueue:
    """A queue that redelivers at once what was not deleted."""

    def __init__(self, *bodies: str) -> None:
        self.messages = {str(number): body for number, body in enumerate(bodies)}
        self.receives: dict[str, int] = {}
        self.changed = threading.Condition()

    def send(self, queue: str, body: str, *, delay_seconds: int = 0) -> None:
        with self.changed:
            self.messages[f"sent-{len(self.messages)}"] = body
            self.changed.notify_all()

    def send_many(self, queue: str, bodies: Sequence[str]) -> None:
        for body in bodies:
            self.send(queue, body)

    def receive(self, queue: str, *, wait_seconds: int, maximum: int = 1) -> Sequence[QueueMessage]:
        with self.changed:
            self.changed.wait_for(lambda: self.messages, timeout=0.05)
            for receipt, body in list(self.messages.items())[:maximum]:
                self.receives[receipt] = self.receives.get(receipt, 0) + 1
                return [QueueMessage(body, receipt, self.receives[receipt])]
        return []

    def delete(self, queue: str, receipt: str) -> None:
        with self.changed:
            del self.messages[receipt]
            self.changed.notify_all()

    def hide(self, queue: str, receipt: str, seconds: int) -> None:
        raise AssertionError("the pump leaves visibility to the queue")

    def waiting(self, queue: str) -> int:
        raise AssertionError("the pump counts nothing")

    def check(self, queue: str) -> None:
        raise AssertionError("the pump learns from receiving whether the queue is there")

    def wait_empty(self) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: not self.messages, timeout=BOUND)


class Calls:
    """Counts calls and lets a test wait for a number of them."""

    def __init__(self, then: Callable[[int], None] = lambda count: None) -> None:
        self.count = 0
        self._then = then
        self._changed = threading.Condition()

    def __call__(self, *arguments: object) -> None:
        with self._changed:
            self.count += 1
            count = self.count
            self._changed.notify_all()
        self._then(count)

    def reached(self, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.count >= count, timeout=BOUND)


def quiet() -> None:
    """A minute tick that finds nothing."""


@pytest.mark.parametrize(
    ("now", "minute"),
    [
        (AN_INSTANT, AN_INSTANT + timedelta(microseconds=1)),
        (AN_INSTANT.replace(second=0, microsecond=0), AN_INSTANT.replace(hour=2, minute=0, second=0, microsecond=0)),
    ],
)
def test_next_minute_is_full_and_later(now: datetime, minute: datetime) -> None:
    assert next_minute(now) == minute


def test_back_off_grows_and_is_bounded() -> None:
    waits = [back_off_seconds(failures) for failures in range(1, 100)]
    assert waits[0] == 0.2
    assert waits == sorted(waits)
    assert waits[-1] == 5.0


def test_event_has_the_shape_of_lambdas() -> None:
    record = sqs_event("tick", QueueMessage('{"v": 1}', "receipt", 3))["Records"][0]
    assert record["body"] == '{"v": 1}'
    assert record["eventSource"] == "aws:sqs"
    assert record["attributes"]["ApproximateReceiveCount"] == "3"


def test_ticks_at_start_and_again_at_the_full_minute() -> None:
    wall, minute = Wall(AN_INSTANT), Calls()
    pump = EventPump(MemoryQueue(), minute, [], clock=wall, say=print)
    pump.start()
    assert minute.reached(1)
    wall.instant += timedelta(seconds=1)
    assert minute.reached(2)
    pump.stop()
    assert minute.count == 2


def test_message_is_deleted_when_its_handler_returns() -> None:
    queue, bodies = MemoryQueue("first", "second"), list[str]()
    source = EventSource("tick", lambda event: bodies.append(event["Records"][0]["body"]))
    pump = EventPump(queue, quiet, [source], clock=SystemClock(), say=print)
    pump.start()
    assert queue.wait_empty()
    pump.stop()
    assert bodies == ["first", "second"]


def test_message_of_a_failing_handler_comes_again_and_the_trouble_is_said_once() -> None:
    def fail_twice(count: int) -> None:
        if count <= 2:
            raise Unavailable("the database does not answer")

    queue, said = MemoryQueue("message"), list[str]()
    handler = Calls(fail_twice)
    pump = EventPump(queue, quiet, [EventSource("tick", handler)], clock=SystemClock(), say=said.append)
    pump.start()
    assert queue.wait_empty()
    pump.stop()
    assert handler.count == 3
    assert len(said) == 2
    assert "the database does not answer" in said[0]


def test_failing_tick_is_repeated_until_it_works() -> None:
    def fail_once(count: int) -> None:
        if count == 1:
            raise Unavailable("the database does not answer")

    minute, said = Calls(fail_once), list[str]()
    pump = EventPump(MemoryQueue(), minute, [], clock=Wall(AN_INSTANT), say=said.append)
    pump.start()
    assert minute.reached(2)
    pump.stop()
    assert minute.count == 2
    assert said[0].startswith("the minute tick failed")


def test_stop_waits_for_the_handler_in_progress() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def handler(event: object) -> None:
        begun.set()
        go_on.wait(BOUND)
        ended.set()

    pump = EventPump(MemoryQueue("message"), quiet, [EventSource("tick", handler)], clock=SystemClock(), say=print)
    pump.start()
    assert begun.wait(BOUND)
    stopper = threading.Thread(target=pump.stop)
    stopper.start()
    go_on.set()
    stopper.join(BOUND)
    assert ended.is_set()
    assert not stopper.is_alive()
