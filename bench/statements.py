"""What a database was asked, counted by the server itself: the same count for us and for peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psycopg

# For EmbeddedPostgres: the extension is a part of Postgres and is loaded at the server's start.
SETTINGS: Mapping[str, str] = {"shared_preload_libraries": "pg_stat_statements"}
_SELF = "pg_stat"


@dataclass(frozen=True, slots=True)
class Asked:
    """Statements (BEGIN and COMMIT are not among them) and committed transactions that changed something or read."""

    statements: int
    transactions: int

    def per(self, count: int) -> Mapping[str, float]:
        """Both, for each of ``count`` runs."""
        return {
            "statements_per_run": round(self.statements / count, 2),
            "transactions_per_run": round(self.transactions / count, 2),
        }


class StatementCounter:
    """Counts in one database, from ``begin`` on. ``url`` is the superuser's address of that database."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._transactions = 0

    def begin(self) -> None:
        """Count from here on."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            connection.execute("SELECT pg_stat_statements_reset()")
            self._transactions = _committed(connection)

    def read(self) -> Asked:
        """What was asked since; sessions that still live may have told the last second or so not yet."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            return Asked(_statements(connection), _committed(connection) - self._transactions)

    def slowest(self, count: int = 25) -> list[tuple[int, float, str]]:
        """Calls, milliseconds in all and text of the statements that took longest; for whoever makes it faster."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            return [
                (int(row[0]), float(row[1]), str(row[2])) for row in connection.execute(_SLOWEST, [count]).fetchall()
            ]


def _committed(connection: psycopg.Connection) -> int:
    connection.execute("SELECT pg_stat_force_next_flush()")
    row = connection.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").fetchone()
    return int(row[0]) if row else 0


def _statements(connection: psycopg.Connection) -> int:
    row = connection.execute(_COUNT, [f"%{_SELF}%"]).fetchone()
    return int(row[0]) if row else 0


_OURS = "FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database()"
_COUNT = f"""
SELECT COALESCE(sum(s.calls), 0) {_OURS}
AND s.query !~* '^(BEGIN|COMMIT|ROLLBACK)' AND s.query NOT LIKE %s
"""
_SLOWEST = f"SELECT s.calls, s.total_exec_time, s.query {_OURS} ORDER BY s.total_exec_time DESC LIMIT %s"
