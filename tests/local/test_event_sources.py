import json
import threading
from typing import Any

from chalicelib.cloud.aws import Aws
from chalicelib.kernel.clock import SystemClock
from chalicelib.local.pump import EventPump, EventSource

BOUND = 30.0


def quiet() -> None:
    """A minute tick that finds nothing."""


class Handler:
    """Fails a number of times, then works; remembers receive counts."""

    def __init__(self, failures: int) -> None:
        self.received: list[tuple[str, int]] = []
        self.worked = threading.Event()
        self._failures = failures

    def __call__(self, event: dict[str, Any]) -> None:
        (record,) = event["Records"]
        self.received.append((record["body"], int(record["attributes"]["ApproximateReceiveCount"])))
        if len(self.received) <= self._failures:
            raise ValueError("not yet")
        self.worked.set()


def test_message_is_redelivered_after_its_visibility_until_handled(aws: Aws) -> None:
    handler = Handler(failures=2)
    pump = EventPump(aws.queues, quiet, [EventSource("tick", handler)], clock=SystemClock(), say=lambda text: None)
    aws.queues.send("tick", "wake")
    pump.start()
    assert handler.worked.wait(BOUND)
    pump.stop()
    assert handler.received == [("wake", 1), ("wake", 2), ("wake", 3)]
    assert aws.queues.receive("tick", wait_seconds=1) == []


def test_waiting_messages_that_say_the_same_are_one_call(aws: Aws) -> None:
    handler = Handler(failures=0)
    source = EventSource("tick", handler, together=10)
    pump = EventPump(aws.queues, quiet, [source], clock=SystemClock(), say=lambda text: None)
    for body in ("wake", "due", "wake", "wake"):
        aws.queues.send("tick", body)
    pump.start()
    assert handler.worked.wait(BOUND)
    pump.stop()
    assert sorted(body for body, _ in handler.received) == ["due", "wake"]
    assert aws.queues.receive("tick", wait_seconds=1) == []


def test_message_that_is_never_handled_reaches_the_dead_letter_handler(aws: Aws) -> None:
    body = json.dumps({"v": 1, "run_id": "run_1", "claim_id": "clm_1", "shard": 0})
    never, dead = Handler(failures=1_000), Handler(failures=0)
    sources = [EventSource("run-container", never), EventSource("run-container-dead", dead)]
    pump = EventPump(aws.queues, quiet, sources, clock=SystemClock(), say=lambda text: None)
    aws.queues.send("run-container", body)
    pump.start()
    assert dead.worked.wait(BOUND)
    pump.stop()
    assert [count for _, count in never.received] == [1, 2, 3, 4, 5]
    assert [text for text, _ in dead.received] == [body]
