"""The product's ``Database`` over one connection, with virtual time, faults at every commit, and observers.

Statements, transactions and repeats are the product's own; only borrowing a connection, waiting and the reply of a
COMMIT are simulated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar

import psycopg
from psycopg.rows import dict_row

from chalicelib.database import Database, Query, Transaction
from chalicelib.database.connection import _REPEATING, _SESSION, Connection, Row
from chalicelib.database.constraints import translated
from tests.simulation.board import Board

Result = TypeVar("Result")
_WRITES = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM)\s+([a-z_]+)")
_REPEAT_SECONDS = 0.1


@dataclass(slots=True)
class Commit:
    """A committed transaction that changed something: its ``:now``, the tables that it wrote, and its fences (shard, epoch)."""

    now: datetime
    process: str
    statements: list[tuple[str, int]] = field(default_factory=list)
    tables: set[str] = field(default_factory=set)
    fences: list[tuple[object, object]] = field(default_factory=list)


@cache
def written_tables(text: str) -> frozenset[str]:
    """The tables that a statement writes."""
    return frozenset(_WRITES.findall(text))


class ObservedTransaction(Transaction):
    """Notes what it wrote; runs the altered text of a statement that a mutation altered."""

    def __init__(self, connection: Connection, now: datetime, rewrites: Mapping[str, str], commit: Commit) -> None:
        super().__init__(connection, now, lambda: None)
        self._rewrites = rewrites
        self._commit = commit

    @property
    def wrote(self) -> bool:
        """Whether a statement of it has changed a row."""
        return bool(self._commit.tables)

    def _run(self, query: Query, parameters: Mapping[str, object]) -> psycopg.Cursor[Row]:
        altered = self._rewrites.get(query.name)
        if altered is not None:
            query = Query(query.name, altered, query.parameters)
        cursor = super()._run(query, parameters)
        if cursor.rowcount > 0 and (tables := written_tables(query.text)):
            self._commit.tables |= tables
        self._commit.statements.append((query.name, cursor.rowcount))
        if query.name == "check_epoch":
            self._commit.fences.append((parameters["shard"], parameters["epoch"]))
        return cursor


@dataclass(slots=True)
class StoreWeather:
    """What is the matter with the store: its clock's error in seconds, and until when it is down (F5, F7)."""

    clock_error: float = 0.0
    down_until: float = 0.0


def lost_connection() -> Exception:
    """What the driver raises when the server goes away, before or after it committed."""
    return psycopg.OperationalError("server closed the connection unexpectedly")


class SimulatedDatabase(Database):
    """One connection, one transaction at a time."""

    def __init__(
        self,
        connection: Connection,
        board: Board,
        weather: StoreWeather,
        observers: Sequence[Callable[[Commit], None]],
        rewrites: Mapping[str, str],
    ) -> None:
        super().__init__("", read_now=lambda _: self._store_now())
        self._connection = connection
        self._board = board
        self._weather = weather
        self._observers = observers
        self._rewrites = rewrites
        self._again = _REPEATING.copy(sleep=lambda _: board.clock.sleep(_REPEAT_SECONDS))

    def _store_now(self) -> datetime:
        return self._board.clock.now() + timedelta(seconds=self._weather.clock_error)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        # What only reads needs no BEGIN: nothing else runs meanwhile.
        with translated(), self._committing(nullcontext()) as tx:
            yield tx
            if tx.wrote:
                raise RuntimeError("something was written outside Database.write")

    def write(self, operation: Callable[[Transaction], Result]) -> Result:
        with translated():
            result: Result = self._again.copy()(self._once, operation)
            return result

    def _once(self, operation: Callable[[Transaction], Result]) -> Result:
        with self._committing(self._atomic()) as tx:
            return operation(tx)

    @contextmanager
    def _atomic(self) -> Iterator[None]:
        """BEGIN and COMMIT without the driver's own book-keeping, which takes longer than both."""
        server = self._connection.pgconn
        server.exec_(b"BEGIN")
        try:
            yield
        except BaseException:
            server.exec_(b"ROLLBACK")
            raise
        answer = server.exec_(b"COMMIT")
        if answer.command_status != b"COMMIT":
            raise RuntimeError(f"the commit was answered with {answer.command_status!r}")

    @contextmanager
    def _committing(self, atomic: AbstractContextManager[object]) -> Iterator[ObservedTransaction]:
        board = self._board
        # The time is read, and then the process may be held up: what the transaction sees is newer than its time.
        now = self._store_now()
        number = board.enter("commit")
        if board.clock.elapsed_seconds() < self._weather.down_until:
            raise lost_connection()
        commit = Commit(now, board.current.name)
        with atomic:
            yield ObservedTransaction(self._connection, now, self._rewrites, commit)
            board.before_effect(number, "commit", lost_connection)
        board.trace.add(commit.process, *(f"{name}={count}" for name, count in commit.statements))
        board.current.ran.update(name for name, _ in commit.statements)
        if commit.tables:
            for observe in self._observers:
                observe(commit)
        board.after_effect(number, "commit", lost_connection)


def connect(url: str) -> Connection:
    """A connection with the product's own session settings, which keeps every statement prepared."""
    connection: Any = psycopg.connect(url, autocommit=True, row_factory=dict_row, options=_SESSION)
    connection.prepare_threshold = 1
    connection.prepared_max = 1_000
    return connection  # type: ignore[no-any-return]  # rows are dictionaries
