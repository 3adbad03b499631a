"""Declared jobs beside the graphs that resolve them: definitions, warnings, and the nodes of all groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .bundle import JobDefinition, Tool
from .drafts import JobDraft
from .graph import CompileWarning, Node, ToolGraph
from .relations import Namespace, NamingRule, canonical_relation, naming_rule


@dataclass(frozen=True, slots=True)
class Resolution:
    """The drafts beside the graphs that answer them."""

    tool: Tool
    graphs: tuple[ToolGraph, ...]
    drafts: tuple[JobDraft, ...]

    @property
    def adapter(self) -> str | None:
        return self.graphs[0].adapter if self.graphs else None

    @property
    def rule(self) -> NamingRule:
        return naming_rule(self.adapter)

    def graph_of(self, job: str) -> ToolGraph | None:
        return next((graph for graph in self.graphs if job in graph.selected), None)

    def definitions(self) -> dict[str, JobDefinition]:
        return {draft.job: self._definition(draft) for draft in sorted(self.drafts, key=lambda draft: draft.job)}

    def _definition(self, draft: JobDraft) -> JobDefinition:
        graph = self.graph_of(draft.job)
        nodes = graph.selected[draft.job] if graph is not None else ()
        also = {canonical_relation(text, self.rule, self._namespace()) for text in draft.writes.also}
        relations = set(also)
        if graph is not None and draft.writes.compiled:
            relations |= _written(graph, nodes)
        return draft.definition(build=draft.build, nodes=nodes, relations=relations, also=also)

    def _namespace(self) -> Namespace:
        first = self.graphs[0] if self.graphs else None
        return Namespace(first.database, first.schema) if first is not None else Namespace()

    def warnings(self) -> list[CompileWarning]:
        found = [warning for graph in self.graphs for warning in graph.warnings]
        for draft in self.drafts:
            graph = self.graph_of(draft.job)
            # an author who lists relations has said what the hooks write
            if graph is not None and draft.writes.compiled and not draft.writes.also:
                found.extend(_hook_warnings(draft.job, graph))
        return found

    def nodes(self) -> dict[str, Node]:
        """Nodes of every group; a node that groups see differently gets a key that covers all of them."""
        merged: dict[str, list[Node]] = {}
        for graph in self.graphs:
            for node_id, node in graph.nodes.items():
                merged.setdefault(node_id, []).append(node)
        return {node_id: _merged(seen) for node_id, seen in sorted(merged.items())}


def _written(graph: ToolGraph, nodes: Iterable[str]) -> set[str]:
    chosen = [graph.nodes[node] for node in nodes]
    return {node.relation for node in chosen if node.writes and node.relation is not None}


def _hook_warnings(job: str, graph: ToolGraph) -> Iterable[CompileWarning]:
    advice = f"if it writes relations, name them in Writes(also=[...]) of {job!r}"
    for node in graph.selected[job]:
        if graph.nodes[node].hooks:
            yield CompileWarning("unclaimed_hook_writes", node, f"what its hooks write is unknown; {advice}")
    if graph.run_hooks:
        yield CompileWarning(
            "unclaimed_hook_writes",
            "on-run-start/on-run-end",
            f"what the project's run hooks write is unknown; {advice}",
        )


def _merged(seen: Sequence[Node]) -> Node:
    keys = sorted({node.drift_key for node in seen})
    if len(keys) == 1:
        return seen[0]
    first = seen[0]
    return Node(
        kind=first.kind,
        relation=first.relation,
        parts={"groups": keys},
        detail=first.detail,
        depends_on=tuple(sorted({upstream for node in seen for upstream in node.depends_on})),
        writes=first.writes,
        hooks=any(node.hooks for node in seen),
    )
