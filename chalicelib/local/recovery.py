"""After a kill: settle what workers of this folder left, before the first tick of a start and while it runs."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..bootstrap import Services
from ..entrypoints.events.recovery import handle_recovery
from ..leases.boots import boots_of_machine
from ..workers.leftovers import end_leftovers, ended_boots
from ..workers.records import settle
from .troubles import Say


def recover(services: Services, state: Path, *, own_store: bool, own_queues: bool, say: Say) -> None:
    """Settle what an earlier stack left in the folder ``state``.

    With a store of our own every boot in it was a worker of this folder; its lease is gone with the AWS stand-in, so
    all of them have ended. With a store that others use too, only boots whose processes are proved gone have.
    Messages of our own queues are gone as well, and what nobody accepted is sent again.
    """
    boots = set(end_leftovers(state, services.clock, secrets.SystemRandom()))
    if own_store and own_queues:
        boots |= set(services.runs.live_boots())
    _settle(services, state, boots, say, "a worker that ended with the earlier start")
    if own_queues:
        services.scheduler.forget_ahead()
    if own_queues and (again := services.dispatch.forget_sent_unaccepted()):
        say(f"sending again what no worker had accepted: {', '.join(again)}")


def recover_shard(services: Services, state: Path, say: Say, event: Mapping[str, Any]) -> None:
    """What a message of the queue ``recovery`` starts here: the Lambda's body, after a look at this machine.

    Workers that were started by hand in this folder, and killed with whatever watched over them, leave their files: who
    sees that their processes are gone proves it (scheduler.md 7.3).
    """
    _settle_gone(services, state, say)
    handle_recovery(services, event)
    _settle_gone(
        services, state, say
    )  # it watched for a whole lease: whoever ended meanwhile need not wait for the next


def _settle_gone(services: Services, state: Path, say: Say) -> None:
    read_items = partial(boots_of_machine, services.aws.leases)
    _settle(services, state, ended_boots(state, secrets.SystemRandom(), read_items), say, "a worker that is gone")


def _settle(services: Services, state: Path, boots: Iterable[str], say: Say, whose: str) -> None:
    for boot in sorted(boots):
        ended = services.runs.boot_ended(boot)
        settle(state, boot)
        if ended.runs:
            say(f"settled {len(ended.runs)} runs of {whose}: {', '.join(ended.runs)}")
