"""What is repeated, what is not, and what comes out of it (scheduler.md 1.4)."""

from __future__ import annotations

import psycopg
import psycopg_pool
import pytest

from chalicelib.database import Database, Transaction
from chalicelib.kernel.errors import IdReused, InvalidRequest, TidemillError, Unavailable
from chalicelib.kernel.limits import WRITE_ATTEMPTS


class Failing:
    """Raises the given error for its first calls."""

    def __init__(self, error: Exception, times: int = 1) -> None:
        self.calls = 0
        self._error, self._times = error, times

    def __call__(self, tx: Transaction) -> str:
        self.calls += 1
        if self.calls <= self._times:
            raise self._error
        return "done"


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.DeadlockDetected("deadlock"),
        psycopg.errors.SerializationFailure("serialization"),
        psycopg.OperationalError("server closed the connection"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_repeat_may_cure_is_repeated(database: Database, error: Exception) -> None:
    operation = Failing(error)
    assert database.write(operation) == "done"
    assert operation.calls == 2


def test_repeats_are_bounded_and_end_in_unavailable(database: Database) -> None:
    operation = Failing(psycopg.errors.DeadlockDetected("deadlock"), times=100)
    with pytest.raises(Unavailable, match="deadlock"):
        database.write(operation)
    assert operation.calls == WRITE_ATTEMPTS


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (psycopg.errors.QueryCanceled("statement timeout"), Unavailable),
        (psycopg_pool.PoolTimeout("no connection in time"), Unavailable),
        (psycopg.errors.StringDataRightTruncation("too long"), InvalidRequest),
        (IdReused("used"), IdReused),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_what_a_repeat_cannot_cure_is_said_at_once(
    database: Database, error: Exception, expected: type[TidemillError]
) -> None:
    operation = Failing(error)
    with pytest.raises(expected):
        database.write(operation)
    assert operation.calls == 1


def test_a_failed_operation_leaves_nothing(database: Database) -> None:
    from chalicelib.database import load_queries

    def insert_and_fail(tx: Transaction) -> None:
        rows = '[{"pool": "x", "slot_limit": 1}]'
        tx.execute(load_queries("chalicelib.runs", "claiming.sql")["keep_worker_pools"], rows=rows)
        raise ValueError("after the insert")

    with pytest.raises(ValueError, match="after the insert"):
        database.write(insert_and_fail)
    with database.transaction() as tx:
        assert tx.rows(load_queries("chalicelib.runs", "claiming.sql")["lock_pools"], pools=["x"]) == []


def test_a_parameter_that_the_query_does_not_take_is_a_mistake_of_ours(database: Database) -> None:
    from chalicelib.database import load_queries

    with database.transaction() as tx, pytest.raises(TypeError, match="lock_pools"):
        tx.rows(load_queries("chalicelib.runs", "claiming.sql")["lock_pools"], pool=["x"])


def test_a_store_that_is_away_is_unavailable_in_bounded_time() -> None:
    away = Database("host=/nowhere-at-all dbname=x")
    with pytest.raises(Unavailable, match="repeat in a few seconds"):
        away.write(lambda tx: tx.now)
    away.close()
