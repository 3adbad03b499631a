"""Queries of snapshots, typed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ..database import Transaction, load_queries
from ..database.connection import json_rows
from ..kernel.canonical import canonical_json
from ..kernel.limits import POOL_LIMIT_DEFAULT
from ..projects.bundle import SnapshotIndex
from .model import JobSummary, JobView, NodeView, Place, PublishRequest, PublishResult, SnapshotView

QUERIES = load_queries(__package__)
_SHARING_TARGETS = 20


def publication(tx: Transaction, publication_id: str) -> dict[str, Any] | None:
    """Place, snapshot and answer of an earlier publication."""
    return tx.row(QUERIES["publication"], publication_id=publication_id)


def target(tx: Transaction, place: Place, *, lock: bool = False) -> dict[str, Any] | None:
    """Whether its location is disabled, and its case rule."""
    return tx.row(QUERIES["lock_target" if lock else "target"], location=place.location, target=place.target)


def add_pools(tx: Transaction, names: Sequence[str]) -> None:
    """Make the pools that are not there, with the limit of new ones."""
    if names:
        tx.execute(QUERIES["add_pools"], names=list(names), slot_limit=POOL_LIMIT_DEFAULT)


def pools(tx: Transaction) -> dict[str, int]:
    """The limit of every pool that is stored."""
    return {row["pool"]: row["slot_limit"] for row in tx.rows(QUERIES["pools"])}


def known_documents(tx: Transaction, hashes: Iterable[str]) -> dict[str, bool]:
    """Those of ``hashes`` that a snapshot has, and whether the content is in the object store."""
    rows = tx.rows(QUERIES["known_documents"], hashes=sorted(hashes))
    return {row["sha256"]: row["in_objects"] for row in rows}


def lock_current(tx: Transaction, place: Place) -> str | None:
    """The id of the current snapshot, locked."""
    row = tx.row(QUERIES["lock_current"], location=place.location, target=place.target)
    return None if row is None else str(row["snapshot_id"])


def insert_snapshot(tx: Transaction, place: Place, snapshot_id: str, index: SnapshotIndex, published_by: str) -> bool:
    """Store the head of a snapshot; ``False`` when it is there already."""
    row = tx.row(
        QUERIES["insert_snapshot"],
        snapshot_id=snapshot_id,
        location=place.location,
        target=place.target,
        tool=index.tool,
        tool_version=index.tool_version,
        baseline_hash=index.baseline,
        git_revision=index.git.revision,
        git_dirty=index.git.dirty,
        git_authors=canonical_json(index.git.authors),
        published_by=published_by,
    )
    return bool(row and row["inserted"])


def insert_documents(
    tx: Transaction, snapshot_id: str, index: SnapshotIndex, bodies: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Store the documents; returns key, sha256 and whether the content is left to the object store."""
    records = [{**document.model_dump(), "body": bodies.get(document.sha256)} for document in index.documents]
    return tx.rows(QUERIES["insert_documents"], snapshot_id=snapshot_id, documents=json_rows(records))


def insert_content(tx: Transaction, snapshot_id: str, index: SnapshotIndex) -> None:
    """Store nodes and job definitions."""
    nodes = [
        {
            "node": node,
            "relation": record.relation,
            "drift_key": record.drift_key,
            "body": {"kind": record.kind, "depends_on": record.depends_on},
        }
        for node, record in index.nodes.items()
    ]
    jobs = [{"job": job, "definition": record.model_dump(mode="json")} for job, record in index.jobs.items()]
    tx.execute(QUERIES["insert_nodes"], snapshot_id=snapshot_id, nodes=json_rows(nodes))
    tx.execute(QUERIES["insert_snapshot_jobs"], snapshot_id=snapshot_id, jobs=json_rows(jobs))


def make_current(tx: Transaction, place: Place, snapshot_id: str, shards: Mapping[str, int]) -> None:
    """Make a snapshot the current one, and its jobs (by their shard) the jobs of the target."""
    where = {"location": place.location, "target": place.target}
    jobs = [{"job": job, "shard": shard} for job, shard in shards.items()]
    tx.execute(QUERIES["put_current"], **where, snapshot_id=snapshot_id)
    tx.execute(QUERIES["remove_jobs"], **where, kept=sorted(shards))
    tx.execute(QUERIES["put_jobs"], **where, snapshot_id=snapshot_id, jobs=json_rows(jobs))


def put_fingerprint(tx: Transaction, place: Place, fingerprint: str) -> None:
    """Keep what the target connects to."""
    tx.execute(QUERIES["put_fingerprint"], location=place.location, target=place.target, fingerprint=fingerprint)


def shared_relations(tx: Transaction, place: Place, snapshot_id: str) -> list[dict[str, Any]]:
    """Other targets that write the same relations without sharing write claims."""
    return tx.rows(
        QUERIES["shared_relations"],
        location=place.location,
        target=place.target,
        snapshot_id=snapshot_id,
        limit=_SHARING_TARGETS,
    )


def insert_publication(tx: Transaction, place: Place, request: PublishRequest, result: PublishResult) -> None:
    """Keep the answer under the publication's id."""
    tx.execute(
        QUERIES["insert_publication"],
        publication_id=request.publication_id,
        location=place.location,
        target=place.target,
        snapshot_id=request.snapshot_id,
        response=result.model_dump_json(),
    )


def current_snapshot(tx: Transaction, place: Place) -> SnapshotView | None:
    """The current snapshot of a target."""
    row = tx.row(QUERIES["current_snapshot"], location=place.location, target=place.target)
    return None if row is None else _snapshot(row)


def snapshot(tx: Transaction, snapshot_id: str) -> SnapshotView | None:
    """A snapshot by its id, with the place where it was published first."""
    row = tx.row(QUERIES["snapshot"], snapshot_id=snapshot_id)
    return None if row is None else _snapshot(row)


def snapshots_page(
    tx: Transaction, place: Place, before: tuple[datetime, str] | None, limit: int
) -> Sequence[SnapshotView]:
    """Snapshots that were published to a target, newest first."""
    before_at, before_id = before or (None, None)
    rows = tx.rows(
        QUERIES["snapshots_page"],
        location=place.location,
        target=place.target,
        before_at=before_at,
        before_id=before_id,
        limit=limit,
    )
    return [_snapshot(row) for row in rows]


def places(tx: Transaction, snapshot_id: str) -> tuple[Place, ...]:
    """Every place that a snapshot was published to."""
    return tuple(Place(**row) for row in tx.rows(QUERIES["places"], snapshot_id=snapshot_id))


def document(tx: Transaction, snapshot_id: str, key: str) -> dict[str, Any] | None:
    """A document's record and its body, ``None`` for one in the object store."""
    return tx.row(QUERIES["document"], snapshot_id=snapshot_id, key=key)


def nodes_page(tx: Transaction, snapshot_id: str, after: str | None, limit: int) -> list[NodeView]:
    """Nodes of a snapshot, by name."""
    rows = tx.rows(QUERIES["nodes_page"], snapshot_id=snapshot_id, after=after, limit=limit)
    return [NodeView(**row.pop("body"), **row) for row in rows]


def jobs(tx: Transaction, place: Place) -> list[JobSummary]:
    """All jobs of a target, by name; a snapshot has at most 1,000."""
    rows = tx.rows(QUERIES["jobs"], location=place.location, target=place.target)
    return [JobSummary(**row) for row in rows]


def job(tx: Transaction, place: Place, name: str) -> JobView | None:
    """A job of a target with its definition."""
    row = tx.row(QUERIES["job"], location=place.location, target=place.target, job=name)
    return None if row is None else JobView.model_validate(row)


def _snapshot(row: Mapping[str, Any]) -> SnapshotView:
    return SnapshotView.model_validate(row)
