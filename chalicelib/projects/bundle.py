"""The snapshot index: what one compile found, in a form that client, server, claim pass and worker share.

The snapshot id is the SHA-256 of the canonical index. Nothing in it depends on time, host or path, so the same
files give the same id everywhere (scheduler.md 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field, JsonValue, StringConstraints

from ..authoring.base import Key, WorkerKind
from ..authoring.builds import Build
from ..authoring.policies import Input, Pool, Retry
from ..kernel.canonical import canonical_json, sha256_bytes, sha256_text
from ..kernel.errors import UnknownDocument
from ..kernel.limits import DOCUMENT_BYTES, DOCUMENTS_PER_SNAPSHOT
from ..kernel.records import SHA256_PATTERN, Record
from .relations import CaseRule

Tool = Literal["sqb", "dbt", "command"]
TriggerKind = Literal["schedule", "source", "run", "platform", "user"]
INDEX_NAME = "index.json"
DOCUMENTS_NAME = "documents"
Sha256 = Annotated[str, StringConstraints(pattern=SHA256_PATTERN)]


class ScheduleSpec(Record):
    """The spec of a schedule trigger; its hash decides whether a publication edits the trigger."""

    cron: str
    timezone: str
    dst: Literal["cron"] = "cron"
    on_resume: Literal["none", "run_latest"] = "none"


class TriggerDefinition(Record):
    """A trigger by its name, unique in the (location, target). ``spec`` is a ``ScheduleSpec`` for a schedule."""

    name: str
    kind: TriggerKind
    enabled: bool = True
    spec: dict[str, JsonValue]


class JobDefinition(Record):
    """Everything that queueing, claiming and running a job needs; no Python object of the user.

    ``nodes`` are the resolved node ids and ``relations`` the canonical relations it writes, both sorted; ``also`` are those
    of the relations that the author declared, which a run of some of the nodes claims as well.
    ``build.target`` is always set for a tool: it names the target in the tool's own configuration.
    """

    job: Key
    description: str = ""
    build: Build
    nodes: tuple[str, ...]
    relations: tuple[str, ...]
    also: tuple[str, ...] = ()
    worker: WorkerKind
    timeout_seconds: int = Field(ge=1)
    concurrency: int = Field(ge=1)
    pools: tuple[Pool, ...] = ()
    retries: Retry | None = None
    inputs: dict[str, Input] = Field(default_factory=dict)
    on_empty: Literal["fail", "succeed"] = "fail"
    triggers: tuple[TriggerDefinition, ...] = ()


class NodeRecord(Record):
    """One node of the tool's graph. ``relation`` is canonical, or ``None`` where it writes none."""

    kind: str
    relation: str | None
    drift_key: str
    depends_on: tuple[str, ...] = ()


class DocumentRecord(Record):
    """One document of the bundle; ``size`` in bytes."""

    key: str = Field(pattern=r"^[a-z0-9_./-]{1,200}$")
    sha256: Sha256
    size: int = Field(ge=0, le=DOCUMENT_BYTES)


class GitRecord(Record):
    """Where the files came from: revision, whether files differ from it, and who changed them."""

    revision: str | None = None
    dirty: bool = False
    authors: tuple[str, ...] = ()


class SnapshotIndex(Record):
    """The whole index. ``baseline`` is the hash of the compile result, which a worker must meet."""

    format: Literal[1] = 1
    project: Key
    tool: Tool
    tool_version: str
    adapter: str | None
    case_rule: CaseRule
    git: GitRecord
    baseline: Sha256
    documents: tuple[DocumentRecord, ...] = Field(max_length=DOCUMENTS_PER_SNAPSHOT)
    nodes: dict[str, NodeRecord]
    jobs: dict[str, JobDefinition]

    def canonical(self) -> str:
        """The text that is hashed, stored and sent."""
        return canonical_json(self.model_dump(mode="json"))

    def snapshot_id(self) -> str:
        """SHA-256 of the canonical index."""
        return sha256_text(self.canonical())


@dataclass(frozen=True, slots=True)
class Bundle:
    """A snapshot index and the documents that it lists, by their SHA-256."""

    index: SnapshotIndex
    documents: Mapping[str, bytes] = field(repr=False)

    @property
    def snapshot_id(self) -> str:
        """SHA-256 of the canonical index."""
        return self.index.snapshot_id()


class Bundled(Protocol):
    """A compilation, as far as writing it needs."""

    @property
    def bundle(self) -> Bundle:
        """The index and its documents."""


def write_bundle(compilation: Bundled | Bundle, out_dir: Path) -> Path:
    """Write ``index.json`` and ``documents/<sha256>`` into ``out_dir``; the index comes last, as the sign of a whole."""
    bundle = compilation if isinstance(compilation, Bundle) else compilation.bundle
    documents = out_dir / DOCUMENTS_NAME
    documents.mkdir(parents=True, exist_ok=True)
    for digest, body in bundle.documents.items():
        (documents / digest).write_bytes(body)
    index = out_dir / INDEX_NAME
    index.write_text(bundle.index.canonical(), encoding="utf-8")
    return index


def read_bundle(folder: Path) -> Bundle:
    """Read what ``write_bundle`` wrote. Raises ``UnknownDocument`` when a document is missing or altered."""
    index_file = folder / INDEX_NAME
    try:
        index = SnapshotIndex.model_validate_json(index_file.read_bytes())
    except FileNotFoundError:
        raise UnknownDocument(f"{folder} holds no {INDEX_NAME}; make a bundle with tidemill compile --out") from None
    except ValueError as problem:
        raise UnknownDocument(f"{index_file} is no snapshot index: {problem}") from None
    return Bundle(index, {listed.sha256: _verified(folder, listed.key, listed.sha256) for listed in index.documents})


def _verified(folder: Path, key: str, digest: str) -> bytes:
    try:
        body = (folder / DOCUMENTS_NAME / digest).read_bytes()
    except FileNotFoundError:
        raise UnknownDocument(f"document {key!r} is missing from {folder}; compile again") from None
    if sha256_bytes(body) != digest:
        raise UnknownDocument(f"document {key!r} in {folder} was altered; compile again")
    return body
