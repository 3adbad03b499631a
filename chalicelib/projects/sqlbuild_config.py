"""The connection part of ``sqlbuild_project.toml``: which adapter and which database a target writes.

The compile is offline and its artifacts leave the database out, but two tools that write one database must agree on
the names of its relations.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .graph import Connection

_FILES = ("sqlbuild_project.toml", "sqlbuild_local.toml")
_PLACES = ("host", "account", "server", "project", "server_hostname", "http_path", "path")
_DATABASES = ("database", "project", "catalog", "dbname")


def sqlbuild_connection(folder: Path, target: str) -> Connection | None:
    """The connection of ``target`` as written; ``None`` when the project file cannot be read or has no such target."""
    config = _config(folder)
    settings = _table(config, "targets", target)
    adapter = settings.get("adapter") or config.get("adapter")
    if not isinstance(adapter, str):
        return None
    connection = {**_table(config, "connections", str(settings.get("connection") or "")), **settings}
    database = _first(connection, _DATABASES)
    if adapter == "duckdb":
        return _duckdb(folder, database)
    return Connection(adapter, _first(connection, _PLACES), database)


def _duckdb(folder: Path, database: str | None) -> Connection:
    """The catalog of a DuckDB file is called as the file without its ending."""
    if not database or database.startswith(":memory:"):
        return Connection("duckdb", None, "memory")
    if database.startswith("md:"):
        return Connection("duckdb", database, database.removeprefix("md:").partition("?")[0] or None)
    return Connection("duckdb", str((folder / database).resolve()), Path(database).stem)


def _config(folder: Path) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name in _FILES:
        path = folder / name
        if path.is_file():
            try:
                _merge(merged, tomllib.loads(path.read_text(encoding="utf-8")))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError):
                continue  # the tool itself says what is wrong with it
    return merged


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def _table(config: Mapping[str, Any], *path: str) -> dict[str, Any]:
    value: Any = config
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return dict(value) if isinstance(value, Mapping) else {}


def _first(table: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((value for name in names if isinstance(value := table.get(name), str) and value), None)
