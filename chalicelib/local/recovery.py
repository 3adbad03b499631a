"""After a kill: end what is left of the earlier run, and tell the store, before the first tick of this one."""

from __future__ import annotations

import secrets
from pathlib import Path

from ..bootstrap import Services
from ..workers.leftovers import end_leftovers
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
    for boot in sorted(boots):
        ended = services.runs.boot_ended(boot)
        settle(state, boot)
        if ended.runs:
            say(
                f"settled {len(ended.runs)} runs of a worker that ended with the earlier start: {', '.join(ended.runs)}"
            )
    if own_queues:
        services.scheduler.forget_ahead()
    if own_queues and (again := services.dispatch.forget_sent_unaccepted()):
        say(f"sending again what no worker had accepted: {', '.join(again)}")
