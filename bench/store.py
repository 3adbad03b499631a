"""A Postgres of one benchmark's own, as ``tidemill dev`` starts it: durable, on this machine's disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from chalicelib.database.store import APPLICATION, initialise_store
from chalicelib.local.postgres import EmbeddedPostgres

# In the repository, since a temporary folder may lie in memory, where nothing is durable.
WORK = Path(__file__).resolve().parent.parent / ".bench"
_TOLD = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers")


@dataclass(frozen=True, slots=True)
class Store:
    """The addresses of the superuser, who fills and looks, and of the product."""

    superuser_url: str
    application_url: str

    @contextmanager
    def direct(self) -> Iterator[psycopg.Connection[dict[str, Any]]]:
        """A connection of the superuser beside the product, in autocommit."""
        with psycopg.connect(self.superuser_url, autocommit=True, row_factory=dict_row) as connection:
            yield connection

    def empty_database(self, name: str) -> str:
        """A new database without our tables in the same server, for a peer; the superuser's address of it."""
        with self.direct() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return urlsplit(self.superuser_url)._replace(path=f"/{name}").geturl()

    def described(self) -> str:
        """The version and the settings on which durability and speed depend."""
        with self.direct() as connection:
            settings = {name: connection.execute(f"SHOW {name}".encode()).fetchone() for name in _TOLD}
        return ", ".join(f"{name}={row[name]}" for name, row in settings.items() if row)


@contextmanager
def durable_server(settings: Mapping[str, str] | None = None) -> Iterator[Callable[[str], Store]]:
    """A new server as ``tidemill dev`` has it, gone at the end; gives what makes a store by name.

    ``settings`` are for looking at it, and change nothing of what is durable.
    """
    WORK.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="postgres-", dir=WORK, ignore_cleanup_errors=True) as folder:
        server = EmbeddedPostgres(Path(folder), settings=settings)
        try:
            server.start()
            yield partial(_make_store, server)
        finally:
            server.stop()


@contextmanager
def durable_store() -> Iterator[Store]:
    """The only store of such a server."""
    with durable_server() as make:
        yield make("bench")


def _make_store(server: EmbeddedPostgres, name: str) -> Store:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    store = Store(server.url(database=name), server.url(role=APPLICATION, database=name))
    initialise_store(store.superuser_url)
    return store
