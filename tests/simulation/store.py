"""One database for many simulations: emptied between them, which takes a quarter of the time of a new one."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from chalicelib.database.connection import Connection
from tests.postgres import PostgresServer, StoreAddress
from tests.simulation.database import connect

# Statistics that change at some moment of the wall clock could change a plan, and with it the order of rows.
_NO_AUTOVACUUM = "ALTER TABLE {} SET (autovacuum_enabled = off)"


class SimulationStore:
    """A store with its rows of the first moment kept aside; ``connection`` is what the product gets."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._open()

    def _open(self) -> None:
        self.address: StoreAddress = self._server.create_store()
        self._owner = psycopg.connect(self.address.superuser_url, autocommit=True)
        found = self._owner.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename")
        self._tables = [str(row[0]) for row in found if row[0] != "store_meta"]
        self._first = {table: rows for table in self._tables if (rows := self._rows(table))}
        for table in self._tables:
            self._owner.execute(sql.SQL(_NO_AUTOVACUUM).format(sql.Identifier(table)))
        self.connection: Connection = connect(self.address.application_url)

    def reset(self) -> None:
        """Bring every table back to its rows of the first moment."""
        names = sql.SQL(", ").join(map(sql.Identifier, self._tables))
        self._owner.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY CASCADE").format(names))
        for table, rows in self._first.items():
            with self._owner.cursor() as cursor, cursor.copy(self._copy(table, "FROM STDIN")) as copy:
                copy.write(rows)

    def renew(self) -> None:
        """A new database, for when the schema itself was altered or is not to be trusted."""
        self._close_connections()
        self._server.drop(self.address)
        self._open()

    def alter(self, statement: str) -> None:
        """Change the schema, as a mutation does; ``renew`` brings it back."""
        self._owner.execute(statement.encode())

    def set_pool(self, pool: str, limit: int) -> None:
        """Give a pool another limit, as an administrator would."""
        self._owner.execute("UPDATE pools SET slot_limit = %s WHERE pool = %s", [limit, pool])

    def dump(self) -> list[str]:
        """All rows of all tables as text, in a fixed order."""
        return [line for table in self._tables for line in sorted(self._rows(table).decode().splitlines())]

    def close(self) -> None:
        """Close the connections and drop the database."""
        self._close_connections()
        self._server.drop(self.address)

    def _close_connections(self) -> None:
        self.connection.close()
        self._owner.close()

    def _rows(self, table: str) -> bytes:
        with self._owner.cursor() as cursor, cursor.copy(self._copy(table, "TO STDOUT")) as copy:
            return b"".join(bytes(part) for part in copy)

    def _copy(self, table: str, how: str) -> Any:
        return sql.SQL("COPY {} " + how).format(sql.Identifier(table))
