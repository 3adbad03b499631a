"""Make a control store from ``schema.sql``, and check that a store was made from this very file."""

from __future__ import annotations

from importlib import resources

import psycopg
from psycopg import sql

from ..kernel.canonical import sha256_text
from ..kernel.errors import LocalStackFailed, UsageError
from .connection import Database
from .constraints import translated
from .queries import load_queries

OWNER, APPLICATION, RETENTION = "tidemill_owner", "tidemill_application", "tidemill_retention"

# Where the application may delete at all; everything else it only adds to and changes.
_APPLICATION_DELETES = (
    "jobs",
    "triggers",
    "trigger_state",
    "run_blockers",
    "slots",
    "write_claims",
    "current_snapshots",
    "due_messages",
    "scheduler_shards",
    # items of a backfill that could not be claimed, and what is past its keeping time; what hangs on these goes with them
    "runs",
    "backfills",
    "ticks",
    "heartbeat_observations",
    "platform_alerts",
    "access_tokens",
    "snapshots",
    "publications",
)


def schema_text() -> str:
    """The text of ``schema.sql``."""
    return resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")


def schema_checksum() -> str:
    """SHA-256 of ``schema.sql``; stands in ``store_meta`` of every store made from it."""
    return sha256_text(schema_text())


def initialise_store(url: str) -> bool:
    """Create the roles and tables at ``url`` (a superuser's or database owner's address).

    Returns ``False`` when the same schema is there already; another schema is refused.
    """
    with translated(), psycopg.connect(url, connect_timeout=5) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(7421, 1)")
        found = stored_checksum(connection)
        if found is not None:
            _check(found)
            return False
        _create(connection)
    return True


def check_open_store(database: Database) -> None:
    """``check_store`` over a connection that is there already: what a readiness check may call at any rate."""
    with database.transaction() as tx:
        row = tx.row(load_queries(__package__)["schema_checksum"])
    _check(str(row["value"]) if row else "")


def check_store(url: str) -> None:
    """Refuse a store that is empty or was made from another ``schema.sql``."""
    with translated(), psycopg.connect(url, connect_timeout=5) as connection:
        found = stored_checksum(connection)
    if found is None:
        raise UsageError("the store is empty; make it with `tidemill admin store init --store URL`")
    _check(found)


def stored_checksum(connection: psycopg.Connection) -> str | None:
    """The checksum of the schema that the store was made from, ``None`` in an empty database."""
    exists = connection.execute("SELECT to_regclass('store_meta') IS NOT NULL").fetchone()
    if exists is None or not exists[0]:
        return None
    row = connection.execute("SELECT value FROM store_meta WHERE key = 'schema_checksum'").fetchone()
    return str(row[0]) if row else None


def _check(found: str) -> None:
    if found != schema_checksum():
        raise LocalStackFailed(
            "the store was made by another release of Tidemill; use that release, or make a new store "
            "(for a local one: remove the folder .tidemill)"
        )


def _create(connection: psycopg.Connection) -> None:
    for role in (OWNER, APPLICATION, RETENTION):
        _create_role(connection, role)
    connection.execute(sql.SQL("GRANT CREATE, USAGE ON SCHEMA public TO {}").format(sql.Identifier(OWNER)))
    connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(OWNER)))
    connection.execute(schema_text().encode())
    connection.execute("INSERT INTO store_meta VALUES ('schema_checksum', %s)", [schema_checksum()])
    _grant(connection)


def _create_role(connection: psycopg.Connection, role: str) -> None:
    exists = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone()
    if not exists:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))


def _grant(connection: psycopg.Connection) -> None:
    application, retention = sql.Identifier(APPLICATION), sql.Identifier(RETENTION)
    connection.execute(sql.SQL("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {}").format(application))
    connection.execute(sql.SQL("REVOKE INSERT, UPDATE ON store_meta FROM {}").format(application))
    deletes = sql.SQL(", ").join(map(sql.Identifier, _APPLICATION_DELETES))
    connection.execute(sql.SQL("GRANT DELETE ON {} TO {}").format(deletes, application))
    connection.execute(sql.SQL("GRANT SELECT, DELETE ON ALL TABLES IN SCHEMA public TO {}").format(retention))
