"""Messages of the queue ``tick``: the same pass for one shard, at a due second or after a wake-up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from chalice.app import Blueprint

from .. import wiring
from .records import due_at_of, kind_of, messages_of, queue_name, shard_of

if TYPE_CHECKING:
    from chalice.app import SQSEvent

    from ...bootstrap import Services

blueprint = Blueprint(__name__)


@blueprint.on_sqs_message(queue=queue_name("tick"), batch_size=1, name="due_tick")
def handler(event: SQSEvent) -> None:
    """What the queue starts."""
    handle_due_tick(wiring.services(), event.to_dict())


def handle_due_tick(services: Services, event: Mapping[str, Any]) -> None:
    """Visit the shard that each message names; the database clock says what is due."""
    for message in messages_of(event):
        services.scheduler.visit(shard_of(message), kind_of(message), due_at_of(message))
