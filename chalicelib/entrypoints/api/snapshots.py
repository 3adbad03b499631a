"""Snapshots: publishing one, and looking at what was published."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from ...access import require
from ...catalog.model import DocumentView, NodeView, PublishRequest, PublishResult, SnapshotView, Upload
from ...kernel.errors import (
    EmptySelection,
    IdReused,
    InvalidSchedule,
    InvalidSelection,
    LocationDisabled,
    NeverFits,
    SnapshotNotCurrent,
    UnknownDocument,
)
from ...kernel.limits import DOCUMENTS_PER_SNAPSHOT
from ...kernel.paging import Page
from ...kernel.records import Record
from .routing import Call, Nothing, Reply, Resource
from .scopes import in_path, of_snapshot, own
from .shapes import Key, Paging, Sha256, TargetPath

resource = Resource("snapshots")


class UploadsRequest(Record):
    """The documents, by hash, that a publication to this target will name."""

    location: Key
    target: Key
    sha256s: Annotated[list[Sha256], Field(max_length=DOCUMENTS_PER_SNAPSHOT)]


class Uploads(Record):
    """Where to PUT each document; no address for one that is here already."""

    uploads: list[Upload]


class SnapshotPath(Record):
    """A snapshot, by its hash."""

    snapshot_id: Sha256


class DocumentPath(SnapshotPath):
    """A document; its key is percent-encoded."""

    key: Annotated[str, Field(pattern=r"^[a-z0-9_./-]{1,200}$")]


@resource.operation("POST", "/snapshots/uploads", permission="snapshots.publish", scope=own)
def upload_documents(call: Call[Nothing, Nothing, UploadsRequest]) -> Uploads:
    """Give presigned addresses for the documents that are not here yet."""
    wanted = call.body
    require(call.principal, "snapshots.publish", wanted.location, wanted.target)
    return Uploads(uploads=list(call.services.catalog.uploads(wanted.location, wanted.target, wanted.sha256s)))


@resource.operation(
    "POST",
    "/locations/{location}/targets/{target}/snapshots",
    permission="snapshots.publish",
    scope=in_path,
    statuses=[HTTPStatus.CREATED, HTTPStatus.OK],
    errors=[
        EmptySelection,
        IdReused,
        InvalidSchedule,
        InvalidSelection,
        LocationDisabled,
        NeverFits,
        SnapshotNotCurrent,
        UnknownDocument,
    ],
    strict=False,  # records of authoring check their own types, and the index must have its hash
)
def publish_snapshot(call: Call[TargetPath, Nothing, PublishRequest]) -> Reply[PublishResult]:
    """Make a snapshot current. 200: it was current already. The same ``publication_id`` gives the same answer."""
    result = call.services.catalog.publish(call.path.location, call.path.target, call.body, call.principal.name)
    return Reply(HTTPStatus.CREATED if result.changed else HTTPStatus.OK, result)


@resource.operation(
    "GET", "/locations/{location}/targets/{target}/snapshots", permission="snapshots.read", scope=in_path
)
def list_snapshots(call: Call[TargetPath, Paging, None]) -> Page[SnapshotView]:
    """List the snapshots of a target, newest first."""
    path, query = call.path, call.query
    return call.services.catalog.snapshots(path.location, path.target, query.limit, query.cursor)


@resource.operation(
    "GET", "/locations/{location}/targets/{target}/snapshots/current", permission="snapshots.read", scope=in_path
)
def show_current_snapshot(call: Call[TargetPath, Nothing, None]) -> SnapshotView:
    """Show the snapshot that new runs of a target use."""
    return call.services.catalog.current(call.path.location, call.path.target)


@resource.operation("GET", "/snapshots/{snapshot_id}", permission="snapshots.read", scope=of_snapshot)
def show_snapshot(call: Call[SnapshotPath, Nothing, None]) -> SnapshotView:
    """Show a snapshot."""
    return call.services.catalog.snapshot(call.path.snapshot_id)


@resource.operation("GET", "/snapshots/{snapshot_id}/documents/{key}", permission="snapshots.read", scope=of_snapshot)
def show_document(call: Call[DocumentPath, Nothing, None]) -> DocumentView:
    """Show a document of a snapshot: a small one as text, a large one as a link that expires."""
    return call.services.catalog.document(call.path.snapshot_id, call.path.key)


@resource.operation("GET", "/snapshots/{snapshot_id}/nodes", permission="snapshots.read", scope=of_snapshot)
def list_nodes_of_snapshot(call: Call[SnapshotPath, Paging, None]) -> Page[NodeView]:
    """List the nodes of a snapshot."""
    return call.services.catalog.nodes(call.path.snapshot_id, call.query.limit, call.query.cursor)
