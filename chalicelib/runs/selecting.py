"""Which nodes of a job a run builds, when not all: named by an input, or left over by an earlier run (scheduler.md 10.2).

The decisions are pure functions over the snapshot's graph; what stands in ``runs.selection`` then decides the write
claims, the worker's arguments and its verification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..database import Transaction, load_queries
from ..projects.bundle import JobDefinition
from ..projects.inputs import selection_of

QUERIES = load_queries(__package__, "selecting.sql")

# A node in one of these states needs no further run.
DONE = frozenset({"succeeded", "warned", "carried"})
SOURCE = "source"


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a snapshot as far as a selection needs it."""

    kind: str
    relation: str | None
    depends_on: tuple[str, ...] = ()


Graph = Mapping[str, GraphNode]


def left_over(selected: Iterable[str], statuses: Mapping[str, str], graph: Graph) -> tuple[str, ...]:
    """Of the nodes that a run had selected those that a rerun from failed builds, sorted.

    They are the ones that neither succeeded nor were carried, and everything of ``selected`` below them in the graph.
    """
    wanted = frozenset(selected)
    unfinished = {node for node in wanted if statuses.get(node) not in DONE and not _is_silent(node, statuses, graph)}
    return with_sources(unfinished | (_below(unfinished, graph) & wanted), wanted, graph)


def with_sources(nodes: Iterable[str], selected: Iterable[str], graph: Graph) -> tuple[str, ...]:
    """``nodes``, and when a source is among them the other sources of ``selected`` that they read; sorted.

    SQLBuild loads either every managed source above the nodes that it builds or none (``--no-load``). So that nothing is
    written without a claim, what it would load belongs to the selection.
    """
    found, loadable = set(nodes), {node for node in selected if _kind(node, graph) == SOURCE}
    if not found & loadable:
        return tuple(sorted(found))
    waiting = list(found)
    while waiting:
        node = graph.get(waiting.pop())
        fresh = {parent for parent in (node.depends_on if node else ()) if parent in loadable} - found
        found |= fresh
        waiting.extend(fresh)
    return tuple(sorted(found))


def _is_silent(node: str, statuses: Mapping[str, str], graph: Graph) -> bool:
    """A model without a relation (dbt's ephemeral ones) is written into others: no tool ever reports it."""
    known = graph.get(node)
    return node not in statuses and known is not None and known.kind == "model" and known.relation is None


def _below(nodes: Iterable[str], graph: Graph) -> frozenset[str]:
    children: dict[str, list[str]] = {}
    for name, node in graph.items():
        for parent in node.depends_on:
            children.setdefault(parent, []).append(name)
    found: set[str] = set()
    waiting = list(nodes)
    while waiting:
        fresh = [child for child in children.get(waiting.pop(), ()) if child not in found]
        found.update(fresh)
        waiting.extend(fresh)
    return frozenset(found)


def _kind(node: str, graph: Graph) -> str | None:
    known = graph.get(node)
    return known.kind if known is not None else None


# --- with the store


def narrowed(
    tx: Transaction, snapshot_id: str, definition: JobDefinition, inputs: Mapping[str, Any]
) -> Sequence[str] | None:
    """The selection that an ``option:select`` input gives a new run; ``None`` for the whole job. Raises ``InvalidInputs``."""
    named = selection_of(definition, inputs)
    if named is None or not any(node.startswith(f"{SOURCE}:") for node in named):
        return named
    return with_sources(named, definition.nodes, graph_of(tx, snapshot_id))


def graph_of(tx: Transaction, snapshot_id: str) -> dict[str, GraphNode]:
    """Every node of a snapshot."""
    rows = tx.rows(QUERIES["graph_of_snapshot"], snapshot_id=snapshot_id)
    return {
        row["node"]: GraphNode(row["body"]["kind"], row["relation"], tuple(row["body"]["depends_on"])) for row in rows
    }
