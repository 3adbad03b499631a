from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from chalicelib.database import Database, Query
from chalicelib.database.store import check_store, initialise_store
from chalicelib.kernel.errors import LocalStackFailed, UsageError
from tests.postgres import PostgresServer, StoreAddress


def test_initialising_again_changes_nothing(store_url: str) -> None:
    assert initialise_store(store_url) is False
    check_store(store_url)


def test_empty_store_is_named_with_the_command_that_makes_it(postgres: PostgresServer) -> None:
    empty = postgres.create_empty()
    try:
        with pytest.raises(UsageError, match="tidemill admin store init"):
            check_store(empty.superuser_url)
    finally:
        postgres.drop(empty)


def test_store_of_another_release_is_refused(store_url: str) -> None:
    with psycopg.connect(store_url) as connection:
        connection.execute("UPDATE store_meta SET value = 'other' WHERE key = 'schema_checksum'")
    with pytest.raises(LocalStackFailed, match="another release"):
        initialise_store(store_url)


FORBIDDEN = [
    "DROP TABLE runs",
    "TRUNCATE runs",
    "ALTER TABLE runs ADD COLUMN extra text",
    "CREATE TABLE extra (x text)",
    "UPDATE store_meta SET value = 'x'",
    "INSERT INTO store_meta VALUES ('x', 'y')",
]
# A part of a history is never removed from it: it goes with its run, snapshot or backfill, or not at all.
NEVER_DELETED = [
    *("locations", "targets", "snapshot_documents", "snapshot_nodes", "snapshot_jobs", "trigger_requests"),
    *(
        "claims",
        "run_events",
        "run_nodes",
        "run_reports",
        "pools",
        "outbox",
        "backfill_items",
        "maintenance",
        "store_meta",
    ),
]


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_application_role_may_not(application_url: str, statement: str) -> None:
    with psycopg.connect(application_url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement)


@pytest.mark.parametrize("table", NEVER_DELETED)
def test_application_role_deletes_nothing_from(application_url: str, table: str) -> None:
    delete = sql.SQL("DELETE FROM {}").format(sql.Identifier(table))
    with psycopg.connect(application_url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(delete)


def test_retention_role_deletes_and_writes_nothing(store: StoreAddress) -> None:
    with psycopg.connect(store.retention_url) as connection:
        connection.execute("DELETE FROM ticks")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO pools VALUES ('x', 1)")


WHO = Query(
    "who",
    "SELECT current_user::text AS role, current_setting('transaction_isolation') AS isolation, current_setting('TimeZone') AS zone",
    frozenset(),
)


def test_database_connects_as_the_application(database: Database) -> None:
    with database.transaction() as tx:
        assert tx.rows(WHO) == [{"role": "tidemill_application", "isolation": "read committed", "zone": "UTC"}]
