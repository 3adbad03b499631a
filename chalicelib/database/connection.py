"""Connections and transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol, TypeVar

import psycopg
import tenacity
from psycopg.rows import dict_row
from psycopg.types.json import set_json_dumps
from psycopg_pool import ConnectionPool

from ..kernel.canonical import canonical_json
from ..kernel.clock import SystemClock
from ..kernel.limits import (
    CONNECTION_TRUSTED_SECONDS,
    CONNECTION_WAIT_SECONDS,
    IDLE_TRANSACTION_TIMEOUT_MS,
    RECONNECT_SECONDS,
    STATEMENT_TIMEOUT_MS,
    WRITE_ATTEMPTS,
)
from .constraints import may_repeat, translated
from .queries import Query

Result = TypeVar("Result")
Row = dict[str, Any]
Connection = psycopg.Connection[Row]
ReadNow = Callable[[Connection], datetime]

# Every statement has its index. A plan that was made, and kept, while a table was nearly empty must not read all of it in
# the burst that fills it: the check of a foreign key is such a plan, and no statement of ours can say how it is planned.
# What has no index after all is then costed so high that it would be compiled first, hence no JIT.
_SESSION = (
    f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c idle_in_transaction_session_timeout={IDLE_TRANSACTION_TIMEOUT_MS} "
    "-c timezone=UTC -c default_transaction_isolation=read\\ committed -c enable_seqscan=off -c jit=off"
)
set_json_dumps(canonical_json)


def database_clock(connection: Connection) -> datetime:
    """The database's own time, not fixed at transaction start as ``now()`` would be."""
    return _time_of(connection.execute("SELECT clock_timestamp() AS now"))


def _begin_at_database_clock(connection: Connection) -> datetime:
    """Begin a transaction and read the clock in it, in one round trip."""
    cursor = connection.execute("BEGIN; SELECT clock_timestamp() AS now")
    cursor.nextset()
    return _time_of(cursor)


def _time_of(cursor: psycopg.Cursor[Row]) -> datetime:
    row = cursor.fetchone()
    if row is None:  # the statement returns a row or raises; this is for the type checker
        raise psycopg.OperationalError("the database gave no time")
    return datetime.fromisoformat(row["now"].isoformat())


class _Pooled(psycopg.Connection[Row]):
    """A connection of a pool, and when it was last good, on this machine's stopwatch."""

    good_at = float("-inf")


class Transaction:
    """An open transaction and the one instant ``now`` that all its statements share."""

    def __init__(self, connection: Connection, now: datetime, counted: Callable[[], None]) -> None:
        self._cursor = connection.cursor()
        self.now = now
        self._counted = counted

    def rows(self, query: Query, **parameters: object) -> list[Row]:
        """All rows as dictionaries."""
        return self._run(query, parameters).fetchall()

    def row(self, query: Query, **parameters: object) -> Row | None:
        """The only row, or ``None``. A query of this kind selects by a unique key."""
        return self._run(query, parameters).fetchone()

    def execute(self, query: Query, **parameters: object) -> int:
        """Run a statement without a result; returns how many rows it changed."""
        return self._run(query, parameters).rowcount

    def _run(self, query: Query, parameters: Mapping[str, object]) -> psycopg.Cursor[Row]:
        self._counted()
        values = {"now": self.now, **parameters} if "now" in query.parameters else parameters
        unknown = values.keys() ^ query.parameters
        if unknown:
            raise TypeError(f"query {query.name}: parameters differ by {sorted(unknown)}")
        return self._cursor.execute(query.encoded, values)


class Write(Protocol):
    """Runs an operation in a transaction of its own and commits it: ``Database.write``, or a fenced form of it."""

    def __call__(self, operation: Callable[[Transaction], Result], /) -> Result:
        """The operation's result."""


class Database:
    """A bounded set of connections to one Postgres.

    ``read_now`` is the database clock unless a simulation passes its own. A connection that was not used just before
    is checked when borrowed, so that one that died while the process was frozen is replaced, not used. ``statements``
    and ``transactions`` count what was sent, so that "a bounded number per batch" can be checked.
    """

    def __init__(self, url: str, *, connections: int = 1, read_now: ReadNow = database_clock) -> None:
        self._read_now = read_now
        self._clock = SystemClock()
        self._trusted_after = float("-inf")
        self.statements = self.transactions = 0
        self._pool: ConnectionPool[_Pooled] = ConnectionPool(
            url,
            connection_class=_Pooled,
            min_size=0,
            max_size=connections,
            timeout=CONNECTION_WAIT_SECONDS,
            # after an outage the next borrower tries anew, instead of waiting for a back-off that has grown
            reconnect_timeout=RECONNECT_SECONDS,
            kwargs={
                "row_factory": dict_row,
                "options": _SESSION,
                "application_name": "tidemill",
                "connect_timeout": 5,
                "autocommit": True,  # BEGIN goes with the reading of the clock
            },
            check=self._check,
            open=False,
        )

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Begin, yield, commit; any exception rolls everything back and the driver's errors become ours."""
        with translated(), self._borrowed() as connection:
            yield self._transaction(connection)

    def write(self, operation: Callable[[Transaction], Result]) -> Result:
        """Run ``operation`` in its own transaction and commit it.

        A deadlock, a lost connection or a lost COMMIT reply repeats the whole operation, which therefore
        must recognise its own earlier commit by a unique key (scheduler.md 1.4).
        """
        with translated():
            result: Result = _REPEATING.copy()(self._once, operation)
            return result

    def _once(self, operation: Callable[[Transaction], Result]) -> Result:
        with self._borrowed() as connection:
            return operation(self._transaction(connection))

    @contextmanager
    def _borrowed(self) -> Iterator[Connection]:
        self._pool.open()
        try:
            with self._pool.connection() as connection:
                yield connection
                connection.commit()
                connection.good_at = self._clock.elapsed_seconds()
        except psycopg.OperationalError:
            # What ended this connection may have ended all the others.
            self._trusted_after = self._clock.elapsed_seconds()
            raise

    def _check(self, connection: _Pooled) -> None:
        now = self._clock.elapsed_seconds()
        if connection.good_at <= max(self._trusted_after, now - CONNECTION_TRUSTED_SECONDS):
            ConnectionPool.check_connection(connection)

    def _transaction(self, connection: Connection) -> Transaction:
        self.transactions += 1
        if self._read_now is database_clock:
            return Transaction(connection, _begin_at_database_clock(connection), self._count)
        connection.execute("BEGIN")
        return Transaction(connection, self._read_now(connection), self._count)

    def _count(self) -> None:
        self.statements += 1

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()


_REPEATING = tenacity.Retrying(
    retry=tenacity.retry_if_exception(may_repeat),
    stop=tenacity.stop_after_attempt(WRITE_ATTEMPTS),
    wait=tenacity.wait_random_exponential(multiplier=0.05, max=1.0),
    reraise=True,
)


def json_rows(records: Sequence[Mapping[str, object]]) -> str:
    """Records as JSON text for ``jsonb_to_recordset``, which makes one statement of many rows."""
    return canonical_json(list(records))
