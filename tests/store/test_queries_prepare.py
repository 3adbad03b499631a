"""Every named query is valid on the real schema, no SQL reads a clock, and every column is read (S61, 1.4)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import chalicelib
from chalicelib.database import Query, load_queries
from chalicelib.database.store import schema_text

PACKAGE = Path(next(iter(chalicelib.__path__)))
FILES = sorted(path for path in PACKAGE.rglob("*.sql") if path.name != "schema.sql")
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_CLOCK = re.compile(
    r"\b(now\s*\(|clock_timestamp|statement_timestamp|transaction_timestamp|current_timestamp|localtime|current_date)",
    re.IGNORECASE,
)
# Columns that no query text names although they are read, each with its reason.
_BY_STAR = "a run's view takes it from `r.*` of list_runs and run"
UNREAD = {"runs.claimed_at": _BY_STAR}


def queries() -> Iterator[tuple[str, Query]]:
    for path in FILES:
        package = ".".join(("chalicelib", *path.parent.relative_to(PACKAGE).parts))
        loaded = load_queries(package, path.name)
        for name in loaded.names():
            yield f"{package}/{path.name}:{name}", loaded[name]


QUERIES = dict(queries())


def numbered(query: Query) -> str:
    """The query with ``$1`` in place of named parameters."""
    names = sorted(query.parameters)
    return _PLACEHOLDER.sub(lambda match: f"${names.index(match[1]) + 1}", query.text).replace("%%", "%")


def sql_texts() -> Iterator[tuple[str, str]]:
    """Every ``.sql`` file without comments, and every string in Python that reads like SQL."""
    for path in (*FILES, PACKAGE / "database" / "schema.sql"):
        yield str(path.relative_to(PACKAGE)), re.sub(r"--[^\n]*", "", path.read_text(encoding="utf-8"))
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.search(r"\b(SELECT|INSERT|UPDATE|DELETE)\b", node.value)
            ):
                yield str(path.relative_to(PACKAGE)), node.value


def columns() -> Iterator[tuple[str, str]]:
    for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)\n\);", schema_text(), re.DOTALL):
        for line in body.splitlines():
            match = re.match(r"    ([a-z_0-9]+)\s+[a-z]", line)
            if match:
                yield table, match[1]


def test_there_are_queries() -> None:
    assert len(QUERIES) > 50


def test_every_query_prepares(application_url: str) -> None:
    refused = []
    with psycopg.connect(application_url, autocommit=True) as connection:
        for number, (name, query) in enumerate(QUERIES.items()):
            try:
                connection.execute(f"PREPARE q{number} AS {numbered(query)}")
            except psycopg.Error as error:
                refused.append(f"{name}: {str(error).splitlines()[0]}")
    assert refused == []


def test_no_sql_reads_a_clock_but_the_one_statement() -> None:
    found = {(place, match[1]) for place, text in sql_texts() for match in _CLOCK.finditer(text)}
    assert found == {(str(Path("database", "connection.py")), "clock_timestamp")}


_SET = re.compile(r"\bSET\b(.*?)(?=\bFROM\b|\bWHERE\b|\bRETURNING\b|$)", re.DOTALL)


def words_read(text: str) -> set[str]:
    """The words of a statement without those that only name a column to write or a parameter."""
    text = re.sub(r"INSERT INTO (\w+) (AS \w+ )?\([^)]*\)", r" \1 ", _PLACEHOLDER.sub(" ", text))
    text = re.sub(r"ON CONFLICT \([^)]*\)", " ", text)
    text = _SET.sub(lambda match: re.sub(r"(^|,)\s*\w+\s*=", ",", match[1]), text)
    return set(re.findall(r"[a-z_0-9]+", text))


def test_every_column_is_read_by_a_query_of_its_table() -> None:
    statements = [query.text for query in QUERIES.values()]
    statements += [text for place, text in sql_texts() if place.startswith("database") and "SELECT value" in text]
    read = [words_read(text) for text in statements]
    unread = {f"{table}.{column}" for table, column in columns() if not any({table, column} <= words for words in read)}
    assert unread == set(UNREAD)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("INSERT INTO t (a, b) SELECT c FROM u", {"t", "c", "u"}),
        ("UPDATE t SET a = 1, b = c WHERE d", {"t", "c", "d", "1"}),
        ("INSERT INTO t (a) VALUES (%(a)s) ON CONFLICT (a) DO UPDATE SET b = excluded.b", {"t", "excluded", "b"}),
    ],
)
def test_what_counts_as_reading(text: str, read: set[str]) -> None:
    assert words_read(text) == read


@pytest.mark.parametrize("text", ["SELECT now()", "DEFAULT CURRENT_TIMESTAMP", "clock_timestamp()", "current_date"])
def test_clock_words_are_recognised(text: str) -> None:
    assert _CLOCK.search(text)
