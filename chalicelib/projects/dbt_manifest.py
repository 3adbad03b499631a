"""Read a dbt manifest: nodes, canonical relations, and what their drift keys cover."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..kernel.canonical import digest_of, sha256_bytes
from .graph import Node
from .relations import Namespace, NamingRule, canonical_relation

WRITING = frozenset({"model", "seed", "snapshot", "function"})
CHECKING = frozenset({"test", "unit_test"})

# What ``dbt ls`` lists for a command of ours; sources, exposures and the like are read or only described.
RUN_BY: Mapping[str, frozenset[str]] = {
    "build": WRITING | CHECKING,
    "run": frozenset({"model", "function"}),
    "seed": frozenset({"seed"}),
    "snapshot": frozenset({"snapshot"}),
    "test": CHECKING,
}

_NOWHERE = Namespace()


def manifest_nodes(manifest: Mapping[str, Any], rule: NamingRule, project_dir: Path) -> dict[str, Node]:
    """Every node, source and unit test of the manifest by unique id; operations (run hooks) are left out."""
    macros = _MacroDigests(manifest)
    known = {
        **manifest["nodes"],
        **manifest["sources"],
        **manifest.get("unit_tests", {}),
        **manifest.get("functions", {}),
    }
    return {
        unique_id: _node(entry, rule, macros.digest_for, project_dir)
        for unique_id, entry in sorted(known.items())
        if entry["resource_type"] in WRITING | CHECKING | {"source"}
    }


def has_run_hooks(manifest: Mapping[str, Any]) -> bool:
    """Whether the project declares ``on-run-start`` or ``on-run-end``."""
    return any(entry["resource_type"] == "operation" for entry in manifest["nodes"].values())


def _node(
    entry: Mapping[str, Any],
    rule: NamingRule,
    macro_digest: Callable[[Mapping[str, Any]], str],
    project_dir: Path,
) -> Node:
    kind = str(entry["resource_type"])
    config = entry.get("config") or {}
    relation_name = entry.get("relation_name")
    writes = kind in WRITING
    return Node(
        kind=kind,
        relation=canonical_relation(relation_name, rule, _NOWHERE) if relation_name else None,
        parts={
            "checksum": (entry.get("checksum") or {}).get("checksum"),
            "code": entry.get("raw_code"),
            "settings": _settings(entry),
            "macros": macro_digest(entry),
            "bytes": _seed_digest(entry, project_dir) if kind == "seed" else None,
        },
        detail=_detail(entry),
        depends_on=tuple(sorted((entry.get("depends_on") or {}).get("nodes") or ())),
        writes=writes,
        hooks=writes and bool(config.get("pre-hook") or config.get("post-hook")),
    )


def _settings(entry: Mapping[str, Any]) -> dict[str, object]:
    """What decides the SQL besides the code.

    Configuration is taken as written (``unrendered_config``), as dbt's own ``state:modified`` does: a rendered value
    may differ between two parses of the same files.
    """
    config = entry.get("config") or {}
    return {
        "config": entry.get("unrendered_config") or {},
        "materialized": config.get("materialized"),
        "contract": (entry.get("contract") or {}).get("checksum"),
        "test": entry.get("test_metadata"),
        "column": entry.get("column_name"),
        "given": entry.get("given"),
        "expect": entry.get("expect"),
        "language": entry.get("language"),
    }


def _seed_digest(entry: Mapping[str, Any], project_dir: Path) -> str | None:
    """Hash of the file's bytes: dbt's checksum of a large seed covers its path only."""
    path = project_dir / (entry.get("root_path") or ".") / entry["original_file_path"]
    return sha256_bytes(path.read_bytes()) if path.is_file() else None


def _detail(entry: Mapping[str, Any]) -> dict[str, object]:
    columns = entry.get("columns") or {}
    return {
        "name": entry.get("name"),
        "fqn": entry.get("fqn") or [],
        "path": entry.get("original_file_path"),
        "description": entry.get("description") or "",
        "columns": [
            {"name": column["name"], "type": column.get("data_type"), "description": column.get("description") or ""}
            for column in columns.values()
        ],
        "tags": sorted(entry.get("tags") or ()),
        "materialized": (entry.get("config") or {}).get("materialized"),
        "code": entry.get("raw_code"),
    }


class _MacroDigests:
    """Digest of the macros that a node reaches, by the project's own files and packages.

    dbt's own macros are left out, since their text changes with the release and not with the project. A call may be
    dispatched to ``<adapter>__name`` and a materialization may be replaced, so macros that end in ``__<name>`` and
    those of the node's materialization count as reached.
    """

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        self._macros: Mapping[str, Mapping[str, Any]] = manifest["macros"]
        own = {"dbt", f"dbt_{manifest['metadata'].get('adapter_type')}"}
        self._foreign = {key for key, macro in self._macros.items() if macro["package_name"] not in own}
        self._dispatched: dict[str, list[str]] = defaultdict(list)
        for key in sorted(self._foreign):
            name = str(self._macros[key]["name"])
            self._dispatched[name.rpartition("__")[2]].append(key)

    def digest_for(self, entry: Mapping[str, Any]) -> str:
        reached: set[str] = set()
        waiting = [*((entry.get("depends_on") or {}).get("macros") or ()), *self._of_materialization(entry)]
        while waiting:
            key = waiting.pop()
            if key in reached:
                continue
            reached.add(key)
            macro = self._macros.get(key)
            if macro is not None:
                waiting.extend(macro["depends_on"]["macros"])
                waiting.extend(self._dispatched.get(str(macro["name"]), ()))
        return digest_of({key: self._macros[key]["macro_sql"] for key in sorted(reached & self._foreign)})

    def _of_materialization(self, entry: Mapping[str, Any]) -> Iterable[str]:
        prefix = f"materialization_{(entry.get('config') or {}).get('materialized')}_"
        return [key for key in self._foreign if str(self._macros[key]["name"]).startswith(prefix)]
