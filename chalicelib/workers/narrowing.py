"""A run that builds some nodes of its job: the build with exactly these nodes selected (scheduler.md 10.2).

Write claims cover the selection and nothing else, so a selector must never reach a node beside the one that it means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ..authoring.builds import Dbt, SqlBuild
from ..kernel.errors import Drift
from ..projects.command import verified_nodes
from ..projects.compilation import Compilation
from ..projects.indexing import GRAPH_DOCUMENT
from ..runs.model import RunInputs
from .runners.plan import RunPlan

# Kinds that sqb selects with their prefix; everything else goes by its bare name.
_PREFIXED = ("seed", "source")
# A test beside a selected node runs only when it is selected itself.
_DBT_EXACTLY = ("--indirect-selection", "empty")
# What would end a dbt selector, or make a pattern of it.
_SPECIAL = frozenset(" ,*?[]+@:")


def nodes_to_verify(inputs: RunInputs) -> Sequence[str]:
    """The nodes whose drift keys must be met: those of the selection, or all of the job."""
    return inputs.selection if inputs.selection is not None else verified_nodes(inputs.definition)


def narrowed(plan: RunPlan, compilation: Compilation) -> RunPlan:
    """The plan cut down to the run's selection; as it is for a run without one. Raises ``Drift`` for an unknown node."""
    selection, build = plan.inputs.selection, plan.build
    if selection is None:
        return plan
    if isinstance(build, SqlBuild):
        return replace(plan, build=_narrowed_sqlbuild(build, selection))
    if isinstance(build, Dbt):
        details = _details(compilation)
        select = tuple(_dbt_selector(node, details) for node in selection)
        chosen = build.model_copy(update={"select": select, "exclude": (), "selector": None})
        return replace(plan, build=chosen, extra_options=(*plan.extra_options, *_DBT_EXACTLY))
    return plan


def _narrowed_sqlbuild(build: SqlBuild, selection: Sequence[str]) -> SqlBuild:
    """Without a selected source nothing is loaded: sqb would load every managed source above the selected nodes."""
    loads = any(node.startswith("source:") for node in selection)
    changes: dict[str, Any] = {"select": tuple(map(_sqlbuild_selector, selection)), "exclude": ()}
    return build.model_copy(update=changes if loads else changes | {"load": "off"})


def _sqlbuild_selector(node: str) -> str:
    kind, _, name = node.partition(":")
    return node if kind in _PREFIXED else name


def _dbt_selector(node: str, details: Mapping[str, Mapping[str, Any]]) -> str:
    """By the node's full name and its file: the full name of ``orders.sql`` is also that of what lies in ``orders/``."""
    if node not in details:
        raise Drift(f"{node} (missing); publish what is on disk, or bring back what was published")
    name, file = ".".join(details[node]["fqn"]), PurePosixPath(str(details[node]["path"])).name
    return f"fqn:{name}" + ("" if _SPECIAL & set(file) else f",file:{file}")


def _details(compilation: Compilation) -> Mapping[str, Mapping[str, Any]]:
    """What the compile told about each node beside its drift key."""
    found = {document.key: document.sha256 for document in compilation.index.documents}
    if GRAPH_DOCUMENT not in found:
        return {}
    details: dict[str, dict[str, Any]] = json.loads(compilation.bundle.documents[found[GRAPH_DOCUMENT]])
    return details
