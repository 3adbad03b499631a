"""Postgres: connections, transactions, named queries, the schema. The only package that opens a connection.

Invariants: READ COMMITTED everywhere; a transaction reads the database clock once and passes it to its SQL
as ``:now``; no network call inside a transaction; a violated constraint becomes a domain error in one place
(``constraints.py``). Locks are taken in the order of ``LOCK_ORDER``. Start reading at ``connection.py``.
"""

from .connection import Database, Transaction, Write
from .queries import Queries, Query, load_queries

# Every transaction that locks rows of several of these locks them in this order; within a table by primary key.
LOCK_ORDER = (
    "targets",
    "current_snapshots",
    "trigger_state",
    "runs",
    "pools",
    "claims",
    "write_claims",
    "slots",
    "outbox",
)

__all__ = ["LOCK_ORDER", "Database", "Queries", "Query", "Transaction", "Write", "load_queries"]
