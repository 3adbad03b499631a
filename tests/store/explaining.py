"""How a statement of the product ran: its plan, with the pages that it read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
from psycopg.rows import dict_row

from chalicelib.database import Query

Connection = psycopg.Connection[dict[str, Any]]
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")


def explained(connection: Connection, query: Query, values: Mapping[str, object], mode: str) -> dict[str, Any]:
    """The plan as it ran, under that ``plan_cache_mode``; what it changed is rolled back."""
    names = sorted(query.parameters)
    text = _PLACEHOLDER.sub(lambda match: f"${names.index(match[1]) + 1}", query.text).replace("%%", "%")
    literals = ", ".join(["%s"] * len(names))
    execute = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE measured ({literals})"
    with connection.transaction(force_rollback=True):
        connection.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        connection.execute(f"PREPARE measured AS {text}".encode())
        cursor = psycopg.ClientCursor(connection)
        cursor.row_factory = dict_row
        row: Any = cursor.execute(execute.encode(), [values[name] for name in names]).fetchone()
        connection.execute("DEALLOCATE measured")
    plan: dict[str, Any] = row["QUERY PLAN"][0]["Plan"]
    return plan


def walk(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The node and all below it."""
    yield node
    for child in node.get("Plans", []):
        yield from walk(child)
