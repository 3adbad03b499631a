"""One installation to be measured: the product's services over a durable store and counted memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from chalicelib.bootstrap import Domains, Stores, build_domains
from chalicelib.database import Database
from chalicelib.database.connection import database_clock
from chalicelib.kernel.clock import Clock, SystemClock
from chalicelib.kernel.ids import IdSource
from chalicelib.settings import Settings
from tests.doubles import MemoryObjects

from .store import Store
from .stores_in_memory import CountedQueues, CountedTable

ReadNow = Callable[[psycopg.Connection[dict[str, Any]]], datetime]


@dataclass(slots=True)
class Installation:
    """The services, and what they called."""

    database: Database
    domains: Domains
    ids: IdSource
    queues: CountedQueues
    leases: CountedTable
    hints: CountedTable
    objects: MemoryObjects

    def forget_calls(self) -> None:
        """Count from here on."""
        self.database.transactions = self.database.statements = 0
        self.queues.sends.clear()
        for table in (self.leases, self.hints):
            table.reads = table.writes = 0

    @property
    def statements(self) -> int:
        """Statements sent to Postgres so far: each transaction's reading of the clock, and what was run in it."""
        return self.database.transactions + self.database.statements

    @property
    def table_calls(self) -> Mapping[str, int]:
        """Calls of DynamoDB so far."""
        tables = (self.leases, self.hints)
        return {"reads": sum(table.reads for table in tables), "writes": sum(table.writes for table in tables)}


@contextmanager
def installation(
    store: Store,
    *,
    container_slots: int,
    clock: Clock | None = None,
    read_now: ReadNow = database_clock,
    connections: int = 2,
    queues: CountedQueues | None = None,
) -> Iterator[Installation]:
    """An installation with one shard and no worker; ``clock`` and ``read_now`` are real unless given."""
    database = Database(store.application_url, connections=connections, read_now=read_now)
    queues, leases, hints = queues or CountedQueues(), CountedTable(), CountedTable()
    objects = MemoryObjects()
    settings = Settings(stage="bench", container_slots=container_slots)
    stores = Stores(database, leases, hints, queues, objects)
    try:
        clock = clock or SystemClock()
        ids = IdSource(clock)
        domains = build_domains(settings, stores, clock, ids)
        yield Installation(database, domains, ids, queues, leases, hints, objects)
    finally:
        database.close()
