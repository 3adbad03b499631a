"""``publish --check``: what differs between a compiled bundle and the current snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..client.address import path_of
from ..kernel.errors import NotFound

if TYPE_CHECKING:
    from ..client.api import ApiClient
    from ..projects.bundle import Bundle

_NODE_FIELDS = ("kind", "relation", "drift_key", "depends_on")


def differences(api: ApiClient, bundle: Bundle, *, location: str, target: str) -> dict[str, Any]:
    """The document of ``--check``: whether anything differs, and the names of nodes and jobs that do."""
    place = path_of("locations", location, "targets", target)
    current = _current(api, place)
    document: dict[str, Any] = {
        "changed": current != bundle.snapshot_id,
        "snapshot_id": bundle.snapshot_id,
        "current_snapshot_id": current,
    }
    if not document["changed"]:
        return document
    nodes, jobs = _published_nodes(api, current), _published_jobs(api, place) if current else {}
    return {**document, "nodes": compared(_nodes(bundle), nodes), "jobs": compared(_jobs(bundle), jobs)}


def compared(after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, list[str]]:
    """Names that were added, removed, or are in both with other content; each list in order."""
    return {
        "added": sorted(after.keys() - before.keys()),
        "changed": sorted(name for name in after.keys() & before.keys() if after[name] != before[name]),
        "removed": sorted(before.keys() - after.keys()),
    }


def _current(api: ApiClient, place: str) -> str | None:
    try:
        return str(api.call("GET", f"{place}/snapshots/current").body["snapshot_id"])
    except NotFound:
        return None


def _published_nodes(api: ApiClient, snapshot_id: str | None) -> dict[str, Any]:
    if snapshot_id is None:
        return {}
    items = api.pages(path_of("snapshots", snapshot_id, "nodes"), {"limit": 200})
    return {item["node"]: [item[name] for name in _NODE_FIELDS] for item in items}


def _published_jobs(api: ApiClient, place: str) -> dict[str, Any]:
    names = [item["job"] for item in api.pages(f"{place}/jobs")]
    return {name: api.call("GET", f"{place}/jobs{path_of(name)}").body["definition"] for name in names}


def _nodes(bundle: Bundle) -> dict[str, Any]:
    dumped = bundle.index.model_dump(mode="json", include={"nodes"})["nodes"]
    return {name: [node[field] for field in _NODE_FIELDS] for name, node in dumped.items()}


def _jobs(bundle: Bundle) -> dict[str, Any]:
    jobs: dict[str, Any] = bundle.index.model_dump(mode="json", include={"jobs"})["jobs"]
    return jobs
