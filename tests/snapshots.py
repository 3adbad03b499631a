"""Builds small snapshot indexes and publish requests for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.catalog import PublishRequest
from chalicelib.kernel.canonical import sha256_text
from chalicelib.projects.bundle import SnapshotIndex


def schedule(name: str, cron: str = "15 6 * * *", timezone: str = "Europe/Berlin", **fields: Any) -> dict[str, Any]:
    spec = {"cron": cron, "timezone": timezone, "dst": "cron", "on_resume": "none"}
    return {"name": name, "kind": "schedule", "spec": spec, **fields}


def job(key: str, *, relations: Sequence[str] = (), triggers: Sequence[Any] = (), **fields: Any) -> dict[str, Any]:
    return {
        "job": key,
        "build": {"kind": "command", "argv": ["true"]},
        "nodes": [],
        "relations": sorted(relations),
        "worker": "container",
        "timeout_seconds": 600,
        "concurrency": 1,
        "triggers": list(triggers),
        **fields,
    }


def index_of(
    jobs: Sequence[Mapping[str, Any]],
    *,
    documents: Mapping[str, str] | None = None,
    nodes: Mapping[str, Any] | None = None,
    **fields: Any,
) -> SnapshotIndex:
    listed = [
        {"key": key, "sha256": sha256_text(text), "size": len(text.encode())} for key, text in (documents or {}).items()
    ]
    return SnapshotIndex.model_validate(
        {
            "project": "coffee",
            "tool": "command",
            "tool_version": "1",
            "adapter": None,
            "case_rule": "lower",
            "git": {"revision": "abc", "dirty": True, "authors": ["ada@example.org"]},
            "baseline": "b" * 64,
            "documents": listed,
            "nodes": dict(nodes or {}),
            "jobs": {item["job"]: item for item in jobs},
            **fields,
        }
    )


def publish_request(
    index: SnapshotIndex, number: int = 1, documents: Sequence[str] = (), *, uploaded: bool = False, **fields: Any
) -> PublishRequest:
    """The request with ``index`` (unless ``uploaded``) and the texts of ``documents`` inside.

    ``number`` makes the publication id.
    """
    return PublishRequest(
        publication_id=f"pub_{number:016}",
        snapshot_id=index.snapshot_id(),
        index=None if uploaded else index,
        documents={sha256_text(text): text for text in documents},
        **fields,
    )
