"""Compare what is on disk with what is published, node by node (scheduler.md 8.1, step 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ..kernel.errors import Drift
from ..kernel.limits import DRIFT_NODES_NAMED
from .compilation import Compilation

Change = Literal["changed", "missing", "unpublished"]


@dataclass(frozen=True, slots=True)
class DriftedNode:
    """A node that differs: its key changed, it is gone from disk, or the snapshot does not know it."""

    node: str
    change: Change


def compare(
    pinned_nodes: Mapping[str, str], pinned_jobnodes: Iterable[str], compilation: Compilation
) -> list[DriftedNode]:
    """The nodes of a job that differ, in order, at most 20; ``pinned_nodes`` maps node id -> drift key.

    ``pinned_jobnodes`` come from ``command.verified_nodes(definition)``.
    """
    found = []
    for node in sorted(set(pinned_jobnodes)):
        change = _change(pinned_nodes.get(node), compilation, node)
        if change is not None:
            found.append(DriftedNode(node, change))
    return found[:DRIFT_NODES_NAMED]


def _change(pinned: str | None, compilation: Compilation, node: str) -> Change | None:
    record = compilation.index.nodes.get(node)
    if record is None:
        return "missing"
    if pinned is None:
        return "unpublished"
    return None if record.drift_key == pinned else "changed"


def refuse_drift(drifted: Iterable[DriftedNode]) -> None:
    """Raise ``Drift`` naming the nodes, or do nothing when there are none."""
    named = list(drifted)
    if named:
        texts = ", ".join(f"{one.node} ({one.change})" for one in named)
        raise Drift(f"{texts}; publish what is on disk, or bring back what was published")
