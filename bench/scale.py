"""What a pass costs with 100 due schedules among 1,000, 100,000 and 1,000,000: the others must not matter."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from chalicelib.kernel.clock import SystemClock

from .document import Document, Figure, rounded, say
from .filling import Connection
from .installation import Installation, installation
from .many_schedules import fill_many
from .percentiles import median
from .store import Store, durable_server

SIZES = (1_000, 100_000, 1_000_000)
DUE = 100
PASSES = 15
# The first passes connect, prepare statements and load pages.
WARM_UP = 5
SLOTS = 10_000
BEGIN = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
_FORGET = ("DELETE FROM slots", "DELETE FROM write_claims", "DELETE FROM runs", "DELETE FROM due_messages")


def measure() -> Document:
    """Three stores in one server, their passes in turn, so that what else the machine does meets all of them."""
    with durable_server() as make, ExitStack() as stack:
        stores = {size: _filled(make, size) for size in SIZES}
        hour = _Hour()
        measured = {size: _Measured(*_opened(stack, stores[size], hour)) for size in SIZES}
        say(f"{WARM_UP} passes to warm up, {PASSES} that count, of each in turn")
        for _ in range(WARM_UP + PASSES):
            hour.advance()
            for one in measured.values():
                one.run_pass()
        medians = {size: median(one.seconds[WARM_UP:]) for size, one in measured.items()}
        figures: dict[str, Figure] = {f"pass_ms_{size}": rounded(seconds * 1_000) for size, seconds in medians.items()}
        more: dict[str, Figure] = {"due": DUE, "passes": PASSES, "postgres": stores[SIZES[0]].described()}
        ratio = rounded(medians[SIZES[-1]] / medians[SIZES[0]])
        return Document("scale", figures | more, ratios={"largest_to_smallest": ratio})


class _Hour(SystemClock):
    """The time that the product reads, so that every pass has its own due minute and none is waited for."""

    def __init__(self) -> None:
        self._now = BEGIN

    def now(self) -> datetime:
        return self._now

    def advance(self) -> None:
        self._now += timedelta(minutes=1)


@dataclass(slots=True)
class _Measured:
    """One installation, and how long each of its passes took."""

    installed: Installation
    direct: Connection
    seconds: list[float] = field(default_factory=list)

    def run_pass(self) -> None:
        """One visit, after which its runs are taken away."""
        began = time.perf_counter()
        result = self.installed.domains.scheduler.visit(0, "due")
        self.seconds.append(time.perf_counter() - began)
        if (result.ticked, result.requested, len(result.claimed)) != (DUE, DUE, DUE):
            raise RuntimeError(f"a pass did not do its work: {result}")
        for statement in _FORGET:
            self.direct.execute(statement.encode())


def _filled(make: Callable[[str], Store], size: int) -> Store:
    say(f"filling {size:,} schedules")
    store = make(f"bench_{size}")
    with store.direct() as connection:
        fill_many(connection, count=size, due=DUE, since=BEGIN)
    return store


def _opened(stack: ExitStack, store: Store, hour: _Hour) -> tuple[Installation, Connection]:
    installed = installation(store, container_slots=SLOTS, clock=hour, read_now=lambda _: hour.now())
    return stack.enter_context(installed), stack.enter_context(store.direct())
