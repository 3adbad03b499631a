"""A poll whose client died takes no message; a living one gets it at once."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest

from chalicelib.cloud.aws import Aws
from chalicelib.cloud.provision import provision
from chalicelib.local.moto_server import MotoServer
from chalicelib.settings import read_settings


@pytest.fixture
def aws() -> Iterator[Aws]:
    server = MotoServer()
    made = Aws(read_settings({"TIDEMILL_AWS_ENDPOINT": server.start()}))
    provision(made)
    yield made
    server.stop()


def test_the_message_that_a_dead_client_waited_for_goes_to_the_next(aws: Aws) -> None:
    address = str(aws.settings.aws_endpoint).removeprefix("http://")
    url = aws.client("sqs").get_queue_url(QueueName=aws.settings.name_of("tick"))["QueueUrl"]
    body = json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20})
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as dead:
        request = (
            f"POST / HTTP/1.1\r\nHost: sqs.eu-central-1.amazonaws.com\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
            f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        )
        dead.sendall(request.encode())
    aws.queues.send("tick", "for the living")
    (message,) = aws.queues.receive("tick", wait_seconds=5)
    assert (message.body, message.receive_count) == ("for the living", 1)


def test_a_waiting_poll_is_answered_when_the_message_comes(aws: Aws) -> None:
    got: list[str] = []
    waiting = threading.Thread(target=lambda: got.extend(m.body for m in aws.queues.receive("tick", wait_seconds=20)))
    waiting.start()
    aws.queues.send("tick", "now")
    waiting.join(10)
    assert got == ["now"]


def test_a_poll_in_vain_ends_in_time_and_an_unknown_queue_is_an_error(aws: Aws) -> None:
    assert aws.queues.receive("tick", wait_seconds=1) == []
    client = aws.client("sqs")
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.receive_message(QueueUrl="http://localhost/000000000000/nowhere", WaitTimeSeconds=5)
