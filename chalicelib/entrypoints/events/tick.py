"""The minute rule: one rule for the whole installation, the safety net under every wake-up (scheduler.md 1.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalice.app import Blueprint, Rate

from ...cron.zones import tzdata_version
from ...kernel.clock import Clock, SystemClock
from ...leases.hints import Hints, shards_to_visit, shards_to_watch
from .. import wiring

if TYPE_CHECKING:
    from chalice.app import CloudWatchEvent

blueprint = Blueprint(__name__)


@blueprint.schedule(Rate(1, unit=Rate.MINUTES), name="tick")
def handler(event: CloudWatchEvent) -> None:
    """What the rule starts. The event holds nothing of use."""
    del event
    handle_tick(wiring.hints(), wiring.services, SystemClock())


def handle_tick(hints: Hints, wire: wiring.Wire, clock: Clock) -> None:
    """Read all hints at once and go no further when every shard may sleep: no database, not even its driver.

    Shards whose boots are watched get a message each, which takes no connection either.
    """
    read = hints.read_all()
    if shards_to_visit(read, clock.now(), tzdata_version()) != [] or shards_to_watch(read) != []:
        wire().scheduler.minute(read)
