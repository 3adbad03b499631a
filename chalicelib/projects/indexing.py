"""Build the snapshot index and its documents from a resolution."""

from __future__ import annotations

from collections.abc import Mapping

from ..kernel.canonical import canonical_json, digest_of, sha256_text
from .bundle import Bundle, DocumentRecord, GitRecord, JobDefinition, NodeRecord, SnapshotIndex
from .command import command_node, command_record
from .graph import Node
from .project_file import ProjectFile
from .resolution import Resolution

GRAPH_DOCUMENT = "graph"


def build_index(project: ProjectFile, resolution: Resolution, git: GitRecord) -> Bundle:
    """The index and its documents. Nothing in it depends on time, host or path."""
    nodes, definitions = resolution.nodes(), resolution.definitions()
    records = {
        node_id: NodeRecord(
            kind=node.kind, relation=node.relation, drift_key=node.drift_key, depends_on=node.depends_on
        )
        for node_id, node in nodes.items()
    }
    records |= {
        command_node(key): command_record(definition)
        for key, definition in definitions.items()
        if definition.build.kind == "command"
    }
    documents = {GRAPH_DOCUMENT: _graph_document(nodes)} if nodes else {}
    index = SnapshotIndex(
        project=project.name,
        tool=resolution.tool,
        tool_version=resolution.graphs[0].tool_version if resolution.graphs else "",
        adapter=resolution.adapter,
        case_rule=resolution.rule.case,
        git=git,
        baseline=_baseline(resolution, records, definitions),
        documents=tuple(
            DocumentRecord(key=key, sha256=sha256_text(text), size=len(text.encode()))
            for key, text in sorted(documents.items())
        ),
        nodes=records,
        jobs=dict(definitions),
    )
    return Bundle(index, {sha256_text(text): text.encode() for text in documents.values()})


def _baseline(resolution: Resolution, records: Mapping[str, NodeRecord], jobs: Mapping[str, JobDefinition]) -> str:
    """Hash of the compile result: what the tool said and what the jobs became, without where it came from."""
    return digest_of(
        {
            "tool": resolution.tool,
            "adapter": resolution.adapter,
            "nodes": {key: record.model_dump(mode="json") for key, record in records.items()},
            "jobs": {key: job.model_dump(mode="json") for key, job in jobs.items()},
        }
    )


def _graph_document(nodes: Mapping[str, Node]) -> str:
    """Per node what a person wants to read: code, description, columns, what it depends on."""
    return canonical_json(
        {
            node_id: {**node.detail, "kind": node.kind, "relation": node.relation, "depends_on": node.depends_on}
            for node_id, node in nodes.items()
        }
    )
