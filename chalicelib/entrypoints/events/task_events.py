"""Events of the container service: a task that has stopped proves that its runs have no process any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from chalice.app import Blueprint

from .. import wiring
from .records import messages_of, queue_name

if TYPE_CHECKING:
    from chalice.app import SQSEvent

    from ...bootstrap import Services

blueprint = Blueprint(__name__)


@blueprint.on_sqs_message(queue=queue_name("task-events"), batch_size=1, name="task_events")
def handler(event: SQSEvent) -> None:
    """What the queue starts; a rule of EventBridge sends it every "ECS Task State Change"."""
    handle_task_events(wiring.services(), event.to_dict())


def handle_task_events(services: Services, event: Mapping[str, Any]) -> None:
    """Settle the runs of stopped tasks; every other event, and one that comes twice or late, changes nothing."""
    from ...runs.proving import stopped_task

    for message in messages_of(event):
        task = stopped_task(message)
        if task is not None:
            services.runs.tasks_stopped([task])
