"""Which handler the pump calls for what: the bodies of the Lambdas, with the services of this process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..bootstrap import Services
from ..entrypoints.events.dead_letter import handle_dead_letter
from ..entrypoints.events.due_tick import handle_due_tick
from ..entrypoints.events.tick import handle_tick
from .pump import EventSource, Handler

# What SQS gives at most in one answer.
_TICKS_TOGETHER = 10


def minute_tick(services: Services) -> Callable[[], object]:
    """What EventBridge's minute rule starts."""
    return partial(handle_tick, services.hints, lambda: services, services.clock)


def event_sources(services: Services, recovery: Handler) -> list[EventSource]:
    """The queues that Lambda would read; run queues are read by workers."""
    dead: Callable[..., None] = partial(handle_dead_letter, services)
    return [
        EventSource("tick", partial(handle_due_tick, services), together=_TICKS_TOGETHER),
        EventSource("recovery", recovery),
        EventSource("run-lambda-dead", dead),
        EventSource("run-container-dead", dead),
    ]
