"""The queue wrapper on SQS (moto): many messages take few calls, and a refused one is not taken for sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from moto import mock_aws

from chalicelib.cloud.aws import Aws, SqsQueues
from chalicelib.cloud.provision import provision
from chalicelib.kernel.errors import Unavailable
from chalicelib.local.moto_lock import install_lock
from chalicelib.settings import read_settings


@pytest.fixture
def aws() -> Iterator[Aws]:
    install_lock()
    with mock_aws():
        made = Aws(read_settings({"TIDEMILL_STAGE": "queues"}))
        provision(made)
        yield made


def received(aws: Aws, queue: str) -> list[str]:
    bodies: list[str] = []
    while messages := aws.queues.receive(queue, wait_seconds=0, maximum=10):
        for message in messages:
            bodies.append(message.body)
            aws.queues.delete(queue, message.receipt)
    return sorted(bodies)


@pytest.mark.parametrize("count", [0, 1, 10, 25])
def test_all_of_many_messages_arrive(aws: Aws, count: int) -> None:
    bodies = [f"message {n:02d}" for n in range(count)]
    aws.queues.send_many("run-container", bodies)
    assert received(aws, "run-container") == bodies


class Refusing:
    """An SQS client that refuses one entry of each batch, as SQS does under throttling."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        self.calls += 1
        return {"Successful": [], "Failed": [{"Id": "0", "Code": "RequestThrottled", "SenderFault": False}]}


def test_a_message_that_was_not_taken_is_said(aws: Aws) -> None:
    client = Refusing(aws.client("sqs"))
    with pytest.raises(Unavailable, match="RequestThrottled"):
        SqsQueues(client, aws.settings).send_many("run-container", ["one", "two"])
    assert client.calls == 1
