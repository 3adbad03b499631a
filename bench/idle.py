"""What an installation with nothing to do costs a minute: AWS calls, Postgres statements, processor time.

The minute rule's handler runs against a moto server over HTTP, with a hint that a real pass has raised before. AWS calls
are counted where the client sends them, statements where the product counts them, processor time on the handler's thread.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.config import Config

from chalicelib.bootstrap import Services, build_services
from chalicelib.cloud.aws import Aws
from chalicelib.cloud.provision import provision
from chalicelib.entrypoints.events.tick import handle_tick
from chalicelib.kernel.clock import SystemClock
from chalicelib.leases.hints import Hints
from chalicelib.local.moto_server import MotoServer
from chalicelib.schedules.model import ScheduleSpec
from chalicelib.settings import Settings

from .document import Document, Figure, rounded, say
from .filling import FilledJob, fill
from .percentiles import median
from .store import Store, durable_store

SCHEDULES = 1_000
MINUTES = 60


def measure() -> Document:
    """One pass, which lets the installation sleep; then an hour's worth of idle ticks."""
    with durable_store() as store, _aws(store) as settings:
        say(f"filling {SCHEDULES:,} schedules due in half a day")
        with store.direct() as connection:
            fill(connection, list(_later()))
        services = build_services(settings)
        try:
            return Document("idle", _idle(services, CountedAws(settings)))
        finally:
            services.close()


def _later() -> Iterator[FilledJob]:
    now = datetime.now(UTC)
    then = now + timedelta(hours=12)
    spec = ScheduleSpec(f"{then.minute} {then.hour} * * *", "UTC")
    for place in range(SCHEDULES):
        yield FilledJob(f"job{place:06}", spec, [f"relation{place:06}"], now)


@contextmanager
def _aws(store: Store) -> Iterator[Settings]:
    server = MotoServer()
    try:
        settings = Settings(stage="bench", aws_endpoint=server.start(), database_url=store.application_url)
        provision(Aws(settings))
        yield settings
    finally:
        server.stop()


class CountedAws(Aws):
    """Clients that count what they send, by operation."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.calls: Counter[str] = Counter()

    def client(self, service: str, changes: Config | None = None) -> Any:
        """As the product makes it, and counted."""
        made = super().client(service, changes)
        made.meta.events.register("before-call", self._count)
        return made

    def _count(self, model: Any, **_: object) -> None:
        self.calls[model.name] += 1


def _idle(services: Services, aws: CountedAws) -> dict[str, Figure]:
    say("a pass, which raises the hint")
    handle_tick(services.hints, lambda: services, services.clock)
    hints, clock, seconds = Hints(aws.hints), SystemClock(), []
    hints.read_all()  # the first call of a process also connects
    aws.calls.clear()
    before = services.database.statements
    say(f"{MINUTES} idle ticks")
    for _ in range(MINUTES):
        began = time.thread_time()
        handle_tick(hints, _refuse, clock)
        seconds.append(time.thread_time() - began)
    reads = aws.calls["Query"] + aws.calls["GetItem"]
    return {
        "dynamodb_reads": reads / MINUTES,
        "other_aws_calls": (aws.calls.total() - reads) / MINUTES,
        "postgres_statements": (services.database.statements - before) / MINUTES,
        "cpu_ms": rounded(median(seconds) * 1_000),
        "schedules": SCHEDULES,
        "ticks": MINUTES,
    }


def _refuse() -> Services:
    raise RuntimeError("an idle tick asked for the services, and so for the database")
