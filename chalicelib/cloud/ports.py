"""What the rest of Tidemill needs of AWS, as Protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """One received message: its body, the handle that deletes it, and how often it was received."""

    body: str
    receipt: str
    receive_count: int


class QueueService(Protocol):
    """SQS by the short names of our queues (``tick``, ``run-container``, ``run-container-dead`` ...)."""

    def check(self, queue: str) -> None:
        """Raise ``Unavailable`` when the queue cannot be reached."""

    def send(self, queue: str, body: str, *, delay_seconds: int = 0) -> None:
        """Send one message of at most 1 KB."""

    def send_many(self, queue: str, bodies: Sequence[str]) -> None:
        """Send messages, ten a call. Raises when one was not taken; others may have been, and repeating sends them twice."""

    def receive(self, queue: str, *, wait_seconds: int, maximum: int = 1) -> Sequence[QueueMessage]:
        """Up to ``maximum`` (10) messages, waiting up to 20 s for the first."""

    def delete(self, queue: str, receipt: str) -> None:
        """Acknowledge a message."""

    def hide(self, queue: str, receipt: str, seconds: int) -> None:
        """Make a received message visible again only after ``seconds`` (0: at once)."""

    def waiting(self, queue: str) -> int:
        """About how many messages the queue holds, visible or not."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A conditional write that was refused, with the item as it stands (``None``: no item)."""

    item: Mapping[str, Any] | None


class LeaseTable(Protocol):
    """The DynamoDB table ``leases``: partition key ``pk``, sort key ``sk``, consistent reads only.

    Numbers come back as ``int``; maps, strings, booleans and lists as themselves.
    """

    def put_new(self, pk: str, sk: str, attributes: Mapping[str, Any]) -> Refusal | None:
        """Create an item; a ``Refusal`` when one is there."""

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
        """One UpdateItem; all new attributes, or a ``Refusal`` with the item as it stands when ``condition`` fails."""

    def get(self, pk: str, sk: str) -> Mapping[str, Any] | None:
        """A consistent read."""

    def partition(self, pk: str) -> Sequence[Mapping[str, Any]]:
        """All items of a partition, by consistent query pages."""

    def delete(self, pk: str, sk: str, *, owner_token: str) -> bool:
        """Delete an item if its ``owner_token`` is that one; ``False`` when it is not."""

    def remove(self, pk: str, sk: str) -> None:
        """Delete an item, whoever owns it; nothing when there is none."""


class TaskService(Protocol):
    """What the container service (ECS) knows of tasks, by their ARN."""

    def last_statuses(self, task_arns: Sequence[str]) -> Mapping[str, str]:
        """The last status (``RUNNING``, ``STOPPED`` ...) of each of up to 100 tasks; one that it does not know is left out."""


class NoTasks:
    """The ``TaskService`` of an installation whose workers are no tasks: it knows none."""

    def last_statuses(self, task_arns: Sequence[str]) -> Mapping[str, str]:
        """Nothing."""
        del task_arns
        return {}


class SecretStore(Protocol):
    """Where secrets lie, by the references that people write behind ``secret:``."""

    def read(self, reference: str) -> str:
        """The value.

        Raises ``InvalidInputs`` for one that is not there or may not be read, ``Unavailable`` when the store is away.
        """


class ObjectStore(Protocol):
    """The S3 bucket, by key."""

    def put(self, key: str, data: bytes, *, content_type: str = "application/octet-stream") -> None:
        """Write an object."""

    def get(self, key: str) -> bytes | None:
        """Read an object, or ``None``."""

    def exists(self, key: str) -> bool:
        """Whether the object is there."""

    def keys(self, prefix: str) -> Sequence[str]:
        """Keys below a prefix, in order, at most 1,000."""

    def upload_url(self, key: str, *, expires_seconds: int = 3_600) -> str:
        """A presigned PUT."""

    def download_url(self, key: str, *, expires_seconds: int = 900) -> str:
        """A presigned GET."""
