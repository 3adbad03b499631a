"""The queue ``run-lambda``: one run per invocation, in a container image that holds the project (scheduler.md 1.2).

Chalice packages zips and cannot carry an image, so this handler is not registered with it: it stands in the image, as
``tidemill.entrypoints.events.run_lambda.handler``, and the template of the workers binds it to the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from ...kernel.errors import Malformed

if TYPE_CHECKING:
    from ...cloud.ports import QueueMessage
    from ...workers.invocation import LambdaWorker


class Context(Protocol):
    """What Lambda tells an invocation of itself."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda ends the invocation."""


@cache
def worker() -> LambdaWorker:
    """The worker of this environment, kept between invocations."""
    from ...workers.lambda_main import worker_here

    return worker_here()


def handler(event: Mapping[str, Any], context: Context) -> None:
    """What the queue starts."""
    handle_run(worker(), event, context)


def handle_run(worker: LambdaWorker, event: Mapping[str, Any], context: Context) -> None:
    """Carry the run of the one message; raising leaves the message in its queue."""
    worker.handle(_message_of(event), context.aws_request_id, lambda: context.get_remaining_time_in_millis() / 1000)


def _message_of(event: Mapping[str, Any]) -> QueueMessage:
    from ...cloud.ports import QueueMessage

    records = event["Records"]
    if len(records) != 1:
        raise Malformed(f"{len(records)} messages in one event; set the batch size of the queue's event source to 1")
    record = records[0]
    return QueueMessage(record["body"], record["receiptHandle"], int(record["attributes"]["ApproximateReceiveCount"]))
