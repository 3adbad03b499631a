"""Asking the scheduler to look at once, after a change that may have made something due."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..log import described, logger

if TYPE_CHECKING:
    from ...bootstrap import Services


def wake(services: Services, shards: Iterable[int] | None = None) -> None:
    """Send one message without delay to each shard (all of them by default), after the commit.

    A message that cannot be sent is only logged: the change is committed, and the minute tick finds it.
    """
    for shard in range(services.settings.scheduler_shards) if shards is None else shards:
        try:
            services.aws.queues.send("tick", json.dumps({"v": 1, "shard": shard, "kind": "wake"}))
        except Exception as error:  # noqa: BLE001  # the minute tick repairs any failure
            logger.warning("the scheduler was not woken", extra={"shard": shard, **described(error)})
