"""A Postgres for tests: one server per test process, one database per test, made from a template.

A ``conftest.py`` imports the fixtures it wants (``postgres``, ``store``, ``database`` and the addresses).
The server is ``TIDEMILL_TEST_POSTGRES`` (a superuser's address) when that is set, else the one that ``tidemill dev``
would find, in a temporary folder. What was started is stopped, and every database that was made is dropped.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from chalicelib.database import Database
from chalicelib.database.store import APPLICATION, OWNER, RETENTION, initialise_store
from chalicelib.local.postgres import EmbeddedPostgres

# for data that may be lost: never in the product
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_CONNECTIONS = 6
# Roles belong to the whole server: two test processes on one server must not make them at the same moment.
_ROLES_LOCK = 7421


@dataclass(frozen=True)
class StoreAddress:
    """The addresses of one test's store, one per role."""

    name: str
    superuser_url: str

    def _as(self, role: str) -> str:
        return make_conninfo(self.superuser_url, user=role)

    @property
    def application_url(self) -> str:
        return self._as(APPLICATION)

    @property
    def owner_url(self) -> str:
        return self._as(OWNER)

    @property
    def retention_url(self) -> str:
        return self._as(RETENTION)


class PostgresServer:
    """A running server, the template in it, and the databases made from that."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = f"tidemill_test_{os.getpid()}_{secrets.token_hex(3)}"
        self._count = 0
        self._template = self.create_empty()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", [_ROLES_LOCK])
            initialise_store(self._template.superuser_url)

    def create_empty(self) -> StoreAddress:
        """A database with nothing in it."""
        return self._create("template1")

    def create_store(self) -> StoreAddress:
        """A database with the schema applied."""
        return self._create(self._template.name)

    def _create(self, template: str) -> StoreAddress:
        self._count += 1
        name = f"{self._prefix}_{self._count}"
        self._statement("CREATE DATABASE {} TEMPLATE {}", name, template)
        return StoreAddress(name, make_conninfo(self._url, dbname=name))

    def drop(self, store: StoreAddress) -> None:
        """Drop a database, ending its connections."""
        self._statement("DROP DATABASE IF EXISTS {} WITH (FORCE)", store.name)

    def close(self) -> None:
        """Drop the template."""
        self.drop(self._template)

    def _statement(self, text: str, *names: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(sql.SQL(text).format(*map(sql.Identifier, names)))


@contextmanager
def _started_server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="tidemill-postgres-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedPostgres(Path(folder), settings=_FAST)
        try:
            yield server.start()
        finally:
            server.stop()


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """The configured server, or one of our own for as long as this is open."""
    with ExitStack() as stack:
        configured = os.environ.get("TIDEMILL_TEST_POSTGRES")
        server = PostgresServer(configured or stack.enter_context(_started_server()))
        stack.callback(server.close)
        yield server


class _Shared:
    """One server for all the conftests of a process that ask for it; the last one to leave stops it."""

    def __init__(self) -> None:
        self._users = 0
        self._server: PostgresServer | None = None
        self._stack = ExitStack()

    @contextmanager
    def use(self) -> Iterator[PostgresServer]:
        if self._server is None:
            self._server = self._stack.enter_context(running_server())
        self._users += 1
        try:
            yield self._server
        finally:
            self._users -= 1
            if self._users == 0:
                self._server = None
                self._stack.close()


_SHARED = _Shared()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server of this test process."""
    with _SHARED.use() as server:
        yield server


@pytest.fixture
def store(postgres: PostgresServer) -> Iterator[StoreAddress]:
    """A store of this test's own, with the schema and nothing else."""
    address = postgres.create_store()
    yield address
    postgres.drop(address)


@pytest.fixture
def store_url(store: StoreAddress) -> str:
    """The superuser's address, as ``tidemill admin store init --store`` takes it."""
    return store.superuser_url


@pytest.fixture
def owner_url(store: StoreAddress) -> str:
    """The address of the role that owns the tables."""
    return store.owner_url


@pytest.fixture
def application_url(store: StoreAddress) -> str:
    """The address that the product connects with (``TIDEMILL_DATABASE_URL``)."""
    return store.application_url


@pytest.fixture
def database(store: StoreAddress) -> Iterator[Database]:
    """The store as the application sees it, with enough connections for races."""
    opened = Database(store.application_url, connections=_CONNECTIONS)
    yield opened
    opened.close()
