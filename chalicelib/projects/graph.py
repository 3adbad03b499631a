"""What a tool tells about a project, in one vocabulary for sqb and dbt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..authoring.builds import Dbt, SqlBuild
from ..kernel.canonical import canonical_json, digest_of
from ..kernel.errors import CompileFailed
from .project_file import ProjectFile, TargetSettings


@dataclass(frozen=True, slots=True)
class Node:
    """One node: ``parts`` is what the drift key covers, ``detail`` what the graph document shows.

    ``writes`` is false for what a build only reads (a source without a loader) or checks (a test).
    """

    kind: str
    relation: str | None
    parts: Mapping[str, object]
    detail: Mapping[str, object]
    depends_on: tuple[str, ...] = ()
    writes: bool = True
    hooks: bool = False

    @property
    def drift_key(self) -> str:
        """SHA-256 over everything that decides what this node does."""
        return digest_of({"kind": self.kind, "relation": self.relation, **self.parts})


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a target's data lives, without any secret; two targets with equal facts share a database."""

    adapter: str
    place: str | None
    database: str | None

    def fingerprint(self) -> str:
        """SHA-256 of adapter, account or host, and database (scheduler.md 4.4)."""
        return digest_of({"adapter": self.adapter, "place": self.place, "database": self.database})


@dataclass(frozen=True, slots=True)
class CompileWarning:
    """Something that the author should know: a stable code, what it is about, and a sentence."""

    code: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class ToolGraph:
    """The whole project for one (target, variables), and the nodes that each job selects."""

    tool_version: str
    adapter: str
    connection: Connection
    nodes: Mapping[str, Node]
    selected: Mapping[str, tuple[str, ...]]
    run_hooks: bool = False
    database: str | None = None
    schema: str | None = None
    warnings: tuple[CompileWarning, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where a tool runs: the project, the settings of the target, its interpreter, and a folder for our files.

    ``version`` is the installed version of the tool, ``None`` when it is missing.
    """

    project: ProjectFile
    settings: TargetSettings
    python: Path
    work_dir: Path
    version: str | None


@dataclass(frozen=True, slots=True)
class SelectionRequest:
    """A job whose selectors a tool must resolve."""

    job: str
    build: SqlBuild | Dbt
    on_empty: str


GroupKey = tuple[str, str]


def grouped(requests: Sequence[SelectionRequest]) -> dict[GroupKey, list[SelectionRequest]]:
    """Requests by (target, canonical variables): what one invocation of a tool can answer together."""
    groups: dict[GroupKey, list[SelectionRequest]] = {}
    for request in requests:
        if request.build.target is None:
            raise CompileFailed(f"{request.job}: the build names no target")
        key = (request.build.target, canonical_json(dict(request.build.vars)))
        groups.setdefault(key, []).append(request)
    return dict(sorted(groups.items()))
