"""Dead-lettered run messages: a claim that nobody accepted ends as ``queue_dead``, so that no run hangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from chalice.app import Blueprint

from .. import wiring
from .records import queue_name

if TYPE_CHECKING:
    from chalice.app import SQSEvent

    from ...bootstrap import Services

blueprint = Blueprint(__name__)


@blueprint.on_sqs_message(queue=queue_name("run-lambda-dead"), batch_size=1, name="dead_letter_lambda")
def lambda_handler(event: SQSEvent) -> None:
    """What the dead-letter queue of Lambda workers starts."""
    handle_dead_letter(wiring.services(), event.to_dict())


@blueprint.on_sqs_message(queue=queue_name("run-container-dead"), batch_size=1, name="dead_letter_container")
def container_handler(event: SQSEvent) -> None:
    """What the dead-letter queue of container workers starts."""
    handle_dead_letter(wiring.services(), event.to_dict())


def handle_dead_letter(services: Services, event: Mapping[str, Any]) -> None:
    """Write each message's verdict to the store."""
    for record in event["Records"]:
        services.dispatch.dead_letter(record["body"])
