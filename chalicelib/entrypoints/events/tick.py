"""The minute rule: one rule for the whole installation, the safety net under every wake-up (scheduler.md 1.2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from chalice.app import Blueprint, Rate

from .. import wiring

if TYPE_CHECKING:
    from chalice.app import CloudWatchEvent

    from ...bootstrap import Services

blueprint = Blueprint(__name__)


@blueprint.schedule(Rate(1, unit=Rate.MINUTES), name="tick")
def handler(event: CloudWatchEvent) -> None:
    """What the rule starts."""
    handle_tick(wiring.services(), event.to_dict())


def handle_tick(services: Services, event: Mapping[str, Any]) -> None:
    """Hand every shard but the first to the queue, and take the first one here. The event holds nothing of use."""
    del event
    for shard in range(1, services.settings.scheduler_shards):
        services.aws.queues.send("tick", json.dumps({"v": 1, "shard": shard, "kind": "minute"}))
    services.scheduler.run_pass(0)
