"""Messages of the queue ``recovery``: watch the workers of one shard for a whole lease (scheduler.md 9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from chalice.app import Blueprint

from .. import wiring
from .records import messages_of, queue_name, shard_of

if TYPE_CHECKING:
    from chalice.app import SQSEvent

    from ...bootstrap import Services

blueprint = Blueprint(__name__)


@blueprint.on_sqs_message(queue=queue_name("recovery"), batch_size=1, name="recovery")
def handler(event: SQSEvent) -> None:
    """What the queue starts."""
    handle_recovery(wiring.services(), event.to_dict())


def handle_recovery(services: Services, event: Mapping[str, Any]) -> None:
    """Recover the shard that each message names."""
    for message in messages_of(event):
        services.recovery.recover(shard_of(message))
