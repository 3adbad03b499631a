"""Create the queues, the tables and the bucket of one installation at an endpoint that has none.

On AWS the same set belongs to ``infra/``; a local stack and tests make it here. Names and attributes come from
the two tables below (scheduler.md 19.2).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from .aws import Aws

DEAD = "-dead"

# Visibility in seconds and receives before a message is dead-lettered.
QUEUES: Mapping[str, tuple[int, int]] = {
    "tick": (180, 5),
    "recovery": (180, 5),
    "run-lambda": (960, 5),
    "run-container": (120, 5),
    "task-events": (120, 5),
}
TABLES = ("leases", "hints")
_KEPT_SECONDS = 14 * 24 * 3_600


def provision(aws: Aws, *, visibility_seconds: int | None = None) -> None:
    """Make everything; what exists already is left alone. ``visibility_seconds`` overrides for tests."""
    for queue, (visible, receives) in QUEUES.items():
        _make_queue(aws, queue, visibility_seconds or visible, receives)
    for table in TABLES:
        _make_table(aws, table)
    _make_bucket(aws)


def _make_queue(aws: Aws, queue: str, visibility_seconds: int, receives: int) -> None:
    sqs, name_of = aws.client("sqs"), aws.settings.name_of
    kept = {"MessageRetentionPeriod": str(_KEPT_SECONDS)}
    dead_url = sqs.create_queue(QueueName=name_of(queue + DEAD), Attributes=kept)["QueueUrl"]
    dead = sqs.get_queue_attributes(QueueUrl=dead_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": receives})
    sqs.create_queue(
        QueueName=name_of(queue),
        Attributes=kept | {"VisibilityTimeout": str(visibility_seconds), "RedrivePolicy": redrive},
    )


def _make_table(aws: Aws, table: str) -> None:
    dynamodb, name = aws.client("dynamodb"), aws.settings.name_of(table)
    if name in dynamodb.list_tables()["TableNames"]:
        return
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        BillingMode="PAY_PER_REQUEST",
    )


def _make_bucket(aws: Aws) -> None:
    s3, name = aws.client("s3"), aws.settings.name_of("objects")
    if name in {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}:
        return
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": aws.settings.aws_region})
