"""The real thing: SQS, DynamoDB and S3 through boto3, also against a local endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import cached_property, partial
from typing import Any

import boto3
import botocore.exceptions
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.config import Config

from ..kernel.errors import Unavailable
from ..settings import Settings
from .ports import QueueMessage, Refusal
from .secrets import AwsSecrets

# Fixed, meaningless credentials: a local endpoint wants a signature and checks none.
_LOCAL_CREDENTIALS = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
_CONFIG = Config(
    retries={"mode": "standard", "max_attempts": 3}, connect_timeout=3, read_timeout=25, max_pool_connections=20
)

# What SQS takes in one call.
_BATCH = 10
_DEPTHS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
# Of the ARN of an ECS task: what comes before the cluster, the cluster, the task.
_ARN_PARTS = 3
# A beat that waits for half a minute is a lost lease: give up early, beat again.
_BEAT_CONFIG = Config(
    retries={"mode": "standard", "max_attempts": 1}, connect_timeout=2, read_timeout=5, max_pool_connections=1
)


@contextmanager
def _answering(service: str) -> Iterator[None]:
    try:
        yield
    except botocore.exceptions.BotoCoreError as error:  # no connection, no credentials, no region
        raise Unavailable(f"{service} does not answer; repeat in a few seconds ({type(error).__name__})") from error
    except botocore.exceptions.ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        raise Unavailable(f"{service} refused the call ({code}); check the set-up with `tidemill doctor`") from error


class Aws:
    """Lazily made clients of one installation; a client is safe to share between threads."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def client(self, service: str, changes: Config | None = None) -> Any:
        """A fresh client; a thread that must not share connections takes its own."""
        local = _LOCAL_CREDENTIALS if self.settings.aws_endpoint else {}
        path_style = Config(s3={"addressing_style": "path"}) if service == "s3" else Config()
        config = _CONFIG.merge(path_style).merge(changes or Config())
        return boto3.session.Session().client(
            service,
            region_name=self.settings.aws_region,
            endpoint_url=self.settings.aws_endpoint,
            config=config,
            **local,
        )

    @cached_property
    def queues(self) -> SqsQueues:
        """The queues."""
        return SqsQueues(self.client("sqs"), self.settings)

    @cached_property
    def leases(self) -> DynamoTable:
        """The table of leases."""
        return DynamoTable(self.client("dynamodb"), self.settings.name_of("leases"))

    @cached_property
    def hints(self) -> DynamoTable:
        """The table of hints."""
        return DynamoTable(self.client("dynamodb"), self.settings.name_of("hints"))

    def own_leases(self) -> DynamoTable:
        """The table of leases over a connection pool of its own, for a beat thread, which repeats by itself."""
        return DynamoTable(self.client("dynamodb", _BEAT_CONFIG), self.settings.name_of("leases"))

    @cached_property
    def tasks(self) -> EcsTasks:
        """The tasks of the container service."""
        return EcsTasks(partial(self.client, "ecs"))

    @cached_property
    def secrets(self) -> AwsSecrets:
        """Secrets Manager and the parameters of Systems Manager."""
        return AwsSecrets(self.client)

    @cached_property
    def objects(self) -> S3Objects:
        """The bucket."""
        return S3Objects(self.client("s3"), self.settings.name_of("objects"))


class SqsQueues:
    """Queues by short name; their addresses are looked up once."""

    def __init__(self, client: Any, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._urls: dict[str, str] = {}

    def _url(self, queue: str) -> str:
        if queue not in self._urls:
            self._urls[queue] = self._client.get_queue_url(QueueName=self._settings.name_of(queue))["QueueUrl"]
        return self._urls[queue]

    def check(self, queue: str) -> None:
        """Raise ``Unavailable`` when SQS does not answer or has no such queue."""
        with _answering("SQS"):
            try:
                self._client.get_queue_url(QueueName=self._settings.name_of(queue))
            except self._client.exceptions.QueueDoesNotExist as error:
                raise Unavailable(f"there is no queue {self._settings.name_of(queue)}") from error

    def send(self, queue: str, body: str, *, delay_seconds: int = 0) -> None:
        """Send one message."""
        with _answering("SQS"):
            self._client.send_message(QueueUrl=self._url(queue), MessageBody=body, DelaySeconds=delay_seconds)

    def send_many(self, queue: str, bodies: Sequence[str]) -> None:
        """Send messages, ten a call."""
        for start in range(0, len(bodies), _BATCH):
            entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies[start : start + _BATCH])]
            with _answering("SQS"):
                failed = self._client.send_message_batch(QueueUrl=self._url(queue), Entries=entries).get("Failed", [])
            if failed:
                raise Unavailable(
                    f"SQS did not take {len(failed)} messages ({failed[0]['Code']}); repeat in a few seconds"
                )

    def receive(self, queue: str, *, wait_seconds: int, maximum: int = 1) -> Sequence[QueueMessage]:
        """Long-poll for messages."""
        with _answering("SQS"):
            answer = self._client.receive_message(
                QueueUrl=self._url(queue),
                WaitTimeSeconds=wait_seconds,
                MaxNumberOfMessages=maximum,
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
            )
        return [
            QueueMessage(m["Body"], m["ReceiptHandle"], int(m["Attributes"]["ApproximateReceiveCount"]))
            for m in answer.get("Messages", [])
        ]

    def delete(self, queue: str, receipt: str) -> None:
        """Acknowledge a message."""
        with _answering("SQS"):
            self._client.delete_message(QueueUrl=self._url(queue), ReceiptHandle=receipt)

    def hide(self, queue: str, receipt: str, seconds: int) -> None:
        """Change the visibility of a received message."""
        with _answering("SQS"):
            self._client.change_message_visibility(
                QueueUrl=self._url(queue), ReceiptHandle=receipt, VisibilityTimeout=seconds
            )

    def waiting(self, queue: str) -> int:
        """How many messages SQS believes to hold."""
        with _answering("SQS"):
            answer = self._client.get_queue_attributes(QueueUrl=self._url(queue), AttributeNames=list(_DEPTHS))
        return sum(int(answer["Attributes"][name]) for name in _DEPTHS)


class EcsTasks:
    """Tasks by their ARN, which names their cluster. The client is made when it is first needed, which is rarely."""

    def __init__(self, make_client: Callable[[], Any]) -> None:
        self._make_client = make_client

    @cached_property
    def _client(self) -> Any:
        return self._make_client()

    def last_statuses(self, task_arns: Sequence[str]) -> Mapping[str, str]:
        """One DescribeTasks per cluster. Tasks are known for about an hour after they stopped."""
        found: dict[str, str] = {}
        for cluster in sorted({_cluster_of(arn) for arn in task_arns}):
            asked = [arn for arn in task_arns if _cluster_of(arn) == cluster]
            with _answering("ECS"):
                try:
                    answer = self._client.describe_tasks(cluster=cluster, tasks=asked)
                except self._client.exceptions.ClusterNotFoundException:
                    continue
            found.update({task["taskArn"]: task["lastStatus"] for task in answer["tasks"]})
        return found


def _cluster_of(task_arn: str) -> str:
    """``arn:aws:ecs:region:account:task/cluster/id``; the ARNs of before 2021 name no cluster."""
    parts = task_arn.split("/")
    return parts[1] if len(parts) == _ARN_PARTS else "default"


class DynamoTable:
    """One table with keys ``pk`` and ``sk``."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table
        self._serializer = TypeSerializer()
        self._deserializer = TypeDeserializer()

    def _wire(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._serializer.serialize(value) for name, value in values.items()}

    def _read(self, item: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _plain(self._deserializer.deserialize(value)) for name, value in item.items()}

    def put_new(self, pk: str, sk: str, attributes: Mapping[str, Any]) -> Refusal | None:
        """Create an item if there is none."""
        item = self._wire({"pk": pk, "sk": sk, **attributes})
        with _answering("DynamoDB"):
            try:
                self._client.put_item(
                    TableName=self._table,
                    Item=item,
                    ConditionExpression="attribute_not_exists(pk)",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
            except self._client.exceptions.ConditionalCheckFailedException as error:
                return self._refusal(error)
        return None

    def update(
        self,
        pk: str,
        sk: str,
        *,
        expression: str,
        condition: str | None,
        names: Mapping[str, str],
        values: Mapping[str, Any],
    ) -> Mapping[str, Any] | Refusal:
        """One UpdateItem, conditional when there is a condition."""
        conditional = {} if condition is None else {"ConditionExpression": condition}
        with _answering("DynamoDB"):
            try:
                answer = self._client.update_item(
                    TableName=self._table,
                    Key=self._wire({"pk": pk, "sk": sk}),
                    UpdateExpression=expression,
                    **conditional,
                    ExpressionAttributeNames=dict(names),
                    ExpressionAttributeValues=self._wire(values),
                    ReturnValues="ALL_NEW",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
            except self._client.exceptions.ConditionalCheckFailedException as error:
                return self._refusal(error)
        return self._read(answer["Attributes"])

    def get(self, pk: str, sk: str) -> Mapping[str, Any] | None:
        """A consistent read."""
        with _answering("DynamoDB"):
            answer = self._client.get_item(
                TableName=self._table, Key=self._wire({"pk": pk, "sk": sk}), ConsistentRead=True
            )
        return self._read(answer["Item"]) if "Item" in answer else None

    def partition(self, pk: str) -> Sequence[Mapping[str, Any]]:
        """All items of a partition."""
        with _answering("DynamoDB"):
            pages = self._client.get_paginator("query").paginate(
                TableName=self._table,
                KeyConditionExpression="pk = :pk",
                ExpressionAttributeValues=self._wire({":pk": pk}),
                ConsistentRead=True,
            )
            return [self._read(item) for page in pages for item in page["Items"]]

    def delete(self, pk: str, sk: str, *, owner_token: str) -> bool:
        """Delete an item that is ours."""
        with _answering("DynamoDB"):
            try:
                self._client.delete_item(
                    TableName=self._table,
                    Key=self._wire({"pk": pk, "sk": sk}),
                    ConditionExpression="owner_token = :owner",
                    ExpressionAttributeValues=self._wire({":owner": owner_token}),
                )
            except self._client.exceptions.ConditionalCheckFailedException:
                return False
        return True

    def remove(self, pk: str, sk: str) -> None:
        """Delete an item."""
        with _answering("DynamoDB"):
            self._client.delete_item(TableName=self._table, Key=self._wire({"pk": pk, "sk": sk}))

    def _refusal(self, error: botocore.exceptions.ClientError) -> Refusal:
        item = error.response.get("Item")
        return Refusal(self._read(item) if item else None)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value


class S3Objects:
    """One bucket."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def put(self, key: str, data: bytes, *, content_type: str = "application/octet-stream") -> None:
        """Write an object."""
        with _answering("S3"):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data, ContentType=content_type)

    def get(self, key: str) -> bytes | None:
        """Read an object, or ``None``."""
        with _answering("S3"):
            try:
                return bytes(self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read())
            except self._client.exceptions.NoSuchKey:
                return None

    def exists(self, key: str) -> bool:
        """Whether the object is there."""
        return key in self.keys(key)

    def keys(self, prefix: str) -> Sequence[str]:
        """Keys below a prefix, in order, at most 1,000."""
        with _answering("S3"):
            answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix)
        return [entry["Key"] for entry in answer.get("Contents", [])]

    def upload_url(self, key: str, *, expires_seconds: int = 3_600) -> str:
        """A presigned PUT."""
        return self._presigned("put_object", key, expires_seconds)

    def download_url(self, key: str, *, expires_seconds: int = 900) -> str:
        """A presigned GET."""
        return self._presigned("get_object", key, expires_seconds)

    def _presigned(self, operation: str, key: str, expires_seconds: int) -> str:
        return str(
            self._client.generate_presigned_url(
                operation, Params={"Bucket": self._bucket, "Key": key}, ExpiresIn=expires_seconds
            )
        )
