"""Records of publishing and of what a snapshot shows."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..kernel import limits
from ..kernel.records import CLIENT_ID_PATTERN, SHA256_PATTERN, Instant, Record
from ..projects.bundle import JobDefinition, SnapshotIndex

Sha256 = Annotated[str, Field(pattern=SHA256_PATTERN)]


class PublishRequest(Record):
    """``POST /locations/{location}/targets/{target}/snapshots``.

    ``index`` is ``None`` when it was uploaded as ``snapshots/<snapshot_id>``. ``documents`` are the small ones by
    hash. ``connection_fingerprint`` is a hash of adapter, host and database. With ``expect_current`` the publication
    is refused unless that snapshot is current.
    """

    publication_id: Annotated[str, Field(pattern=CLIENT_ID_PATTERN)]
    snapshot_id: Sha256
    index: SnapshotIndex | None = None
    documents: dict[Sha256, str] = Field(default_factory=dict, max_length=limits.DOCUMENTS_PER_SNAPSHOT)
    connection_fingerprint: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    expect_current: Sha256 | None = None


class TriggerChanges(Record):
    """How many triggers the publication added, changed, left alone and removed."""

    added: int = 0
    changed: int = 0
    kept: int = 0
    removed: int = 0


class PublishResult(Record):
    """The answer to a publication. ``changed`` is false when that snapshot was current already."""

    publication_id: str
    snapshot_id: str
    location: str
    target: str
    jobs: tuple[str, ...]
    triggers: TriggerChanges
    current: bool = True
    changed: bool
    warnings: tuple[str, ...] = ()


class Upload(Record):
    """Where to PUT a document; ``url`` is ``None`` for one that is here and was checked."""

    sha256: str
    url: str | None


class Place(Record):
    """A target of a location."""

    location: str
    target: str


class SnapshotView(Record):
    """What a snapshot is and where it came from; ``created_at`` and ``published_by`` are of its first publication."""

    snapshot_id: str
    location: str
    target: str
    tool: str
    tool_version: str
    baseline_hash: str
    git_revision: str | None
    git_dirty: bool
    git_authors: tuple[str, ...]
    created_at: Instant
    published_by: str | None
    current: bool


class DocumentView(Record):
    """A document, either its text or a link to it; ``size`` in bytes."""

    key: str
    sha256: str
    size: int
    text: str | None
    url: str | None


class NodeView(Record):
    """A node of a snapshot."""

    node: str
    kind: str
    relation: str | None
    drift_key: str
    depends_on: tuple[str, ...]


class JobSummary(Record):
    """A job in a list; ``nodes`` and ``relations`` are counts, ``triggers`` are names."""

    job: str
    snapshot_id: str
    description: str
    worker: str
    timeout_seconds: int
    nodes: int
    relations: int
    triggers: tuple[str, ...]


class JobView(Record):
    """A job with its whole definition, as the current snapshot has it."""

    location: str
    target: str
    job: str
    snapshot_id: str
    definition: JobDefinition
