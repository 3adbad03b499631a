"""Which handler the pump calls for what: the bodies of the Lambdas, with the services of this process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from ..bootstrap import Services
from ..entrypoints.events.dead_letter import handle_dead_letter
from ..entrypoints.events.due_tick import handle_due_tick
from ..entrypoints.events.tick import handle_tick
from .pump import EventSource, Ticks


def ticks(services: Services) -> Ticks:
    """The minute rule, and a pass of every shard that has something due."""
    return Ticks(
        minute=partial(handle_tick, services, {}),
        due=partial(_pass_due_shards, services),
        next_due_at=partial(_next_due_at, services),
    )


def event_sources(services: Services) -> list[EventSource]:
    """The queues that Lambda would read; run queues are read by workers."""
    dead: Callable[..., None] = partial(handle_dead_letter, services)
    return [
        EventSource("tick", partial(handle_due_tick, services)),
        EventSource("run-lambda-dead", dead),
        EventSource("run-container-dead", dead),
    ]


def _shards(services: Services) -> range:
    return range(services.settings.scheduler_shards)


def _next_due_at(services: Services) -> datetime | None:
    known = [services.scheduler.next_due_at(shard) for shard in _shards(services)]
    return min((instant for instant in known if instant is not None), default=None)


def _pass_due_shards(services: Services) -> None:
    now = services.clock.now()
    for shard in _shards(services):
        due = services.scheduler.next_due_at(shard)
        if due is not None and due <= now:
            services.scheduler.run_pass(shard)
