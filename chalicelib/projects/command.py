"""Command jobs: no graph to resolve; the definition itself is what must not drift."""

from __future__ import annotations

from ..kernel.canonical import digest_of
from .bundle import JobDefinition, NodeRecord

COMMAND_PREFIX = "command:"


def command_node(job: str) -> str:
    """The id under which the snapshot keeps the drift key of a Command job."""
    return f"{COMMAND_PREFIX}{job}"


def command_record(definition: JobDefinition) -> NodeRecord:
    """The drift key of a Command job: the digest of what it runs and writes (scheduler.md 4.3)."""
    covered = {
        "build": definition.build.model_dump(mode="json"),
        "relations": definition.relations,
        "inputs": {name: value.model_dump(mode="json") for name, value in definition.inputs.items()},
    }
    return NodeRecord(kind="command", relation=None, drift_key=digest_of(covered))


def verified_nodes(definition: JobDefinition) -> tuple[str, ...]:
    """The node ids whose drift keys a worker must meet before it starts a run of this job."""
    return definition.nodes or ((command_node(definition.job),) if definition.build.kind == "command" else ())
