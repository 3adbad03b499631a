"""Read what ``sqb compile --json --dag FILE --manifest`` wrote: nodes, relations, and what drift keys cover."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..kernel.canonical import digest_of, sha256_bytes
from .graph import Node
from .relations import Namespace, NamingRule, canonical_relation

# Folders whose code runs inside nodes but is not part of their text.
_HOOKS, _MATERIALIZATIONS, _PYTHON = "hooks", "materializations", "python"
_BUILT_IN = frozenset({"table", "view", "incremental", "snapshot", "scd2", "external"})
_PYTHON_KINDS = frozenset({"task", "asset", "check", "loader"})


class Artifacts:
    """The DAG (always the whole project) beside the manifest of one compile."""

    def __init__(
        self, dag: Mapping[str, Any], manifest: Mapping[str, Any], folder: Path, rule: NamingRule, database: str | None
    ) -> None:
        self._dag, self._folder, self._rule = dag, folder, rule
        self._namespace = Namespace(database=database)
        self._described = {
            f"{entry['resource_type']}:{entry['name']}": entry
            for entry in (*manifest["nodes"].values(), *manifest["sources"].values())
        }
        self._folders: dict[str, str] = {}

    def nodes(self) -> dict[str, Node]:
        """Every node of the project by the tool's own id, such as ``model:orders``."""
        upstream: dict[str, set[str]] = defaultdict(set)
        for edge in self._dag["edges"]:
            upstream[edge["to_id"]].add(edge["from_id"])
        checks = self._checks()
        ordered = sorted(self._dag["nodes"], key=lambda entry: str(entry["id"]))
        return {entry["id"]: self._node(entry, upstream[entry["id"]], checks[entry["id"]]) for entry in ordered}

    def _node(self, entry: Mapping[str, Any], upstream: set[str], checks: list[str]) -> Node:
        kind, described = str(entry["kind"]), self._described.get(entry["id"], {})
        config = described.get("config") or {}
        hooks = bool(config.get("pre-hook") or config.get("post-hook"))
        managed = bool(((described.get("meta") or {}).get("sqlbuild") or {}).get("loader"))
        qualified = (entry.get("target") or {}).get("qualified_name")
        return Node(
            kind=kind,
            relation=canonical_relation(qualified, self._rule, self._namespace) if qualified else None,
            parts={
                "checksum": (described.get("checksum") or {}).get("checksum"),
                "code": entry.get("sql"),
                "compiled": described.get("compiled_code"),
                "config": config,
                "settings": {
                    key: entry.get(key) for key in ("columns", "arguments", "returns", "materialization_type")
                },
                "checks": checks,
                "bytes": self._bytes(entry),
                "hooks": self._folder_digest(_HOOKS) if hooks else None,
                "materialization": self._materialization(entry),
                "python": self._folder_digest(_PYTHON) if kind in _PYTHON_KINDS or managed else None,
            },
            detail=_detail(entry),
            depends_on=tuple(sorted(upstream)),
            writes=kind != "source" or managed,
            hooks=hooks,
        )

    def _checks(self) -> Mapping[str, list[str]]:
        """Digests of the tests and audits of each node, with the text of the files that hold them."""
        found: dict[str, list[str]] = defaultdict(list)
        for check in self._dag.get("checks", ()):
            digest = digest_of({"check": check, "bytes": self._bytes(check)})
            for asset in check.get("checked_asset_ids", ()):
                found[asset].append(digest)
        return defaultdict(list, {asset: sorted(digests) for asset, digests in found.items()})

    def _bytes(self, entry: Mapping[str, Any]) -> str | None:
        """Hash of the file of a seed or check: the manifest leaves a seed's checksum empty."""
        path = self._folder / str(entry.get("path") or "")
        return sha256_bytes(path.read_bytes()) if entry.get("kind") != "model" and path.is_file() else None

    def _materialization(self, entry: Mapping[str, Any]) -> str | None:
        kind = entry.get("materialization_type")
        return None if kind is None or kind in _BUILT_IN else self._folder_digest(_MATERIALIZATIONS)

    def _folder_digest(self, name: str) -> str:
        if name not in self._folders:
            files = sorted(path for path in (self._folder / name).rglob("*") if _is_source(path))
            self._folders[name] = digest_of(
                {path.relative_to(self._folder).as_posix(): sha256_bytes(path.read_bytes()) for path in files}
            )
        return self._folders[name]


def _is_source(path: Path) -> bool:
    return path.is_file() and path.suffix in {".py", ".sql"}


def _detail(entry: Mapping[str, Any]) -> dict[str, object]:
    described: Callable[[str], Any] = entry.get
    return {
        "name": described("name"),
        "path": described("path"),
        "description": described("description") or "",
        "columns": [
            {"name": column["name"], "type": column.get("type"), "description": column.get("description") or ""}
            for column in described("columns") or ()
        ],
        "tags": sorted(described("tags") or ()),
        "materialized": described("materialization_type"),
        "code": described("sql"),
    }
