"""SQLBuild: one compile of the whole project per (target, variables), and one look-up per distinct selection.

Tried with 0.183.0: the report of ``sqb compile --select`` counts the selected models, seeds and functions but lists the
whole project; ``sqb lineage --select`` lists exactly what is selected. So the list comes from the latter, for which the
target cannot be chosen, and the counts of the former for the right target must agree with it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..authoring.builds import SqlBuild
from ..kernel.canonical import digest_of
from ..kernel.errors import CompileFailed, EmptySelection, InvalidSelection, ToolMissing
from .collecting import last_line
from .graph import Connection, GroupKey, Node, SelectionRequest, ToolContext, ToolGraph, grouped
from .interpreters import install_command
from .processes import run_to_end
from .relations import naming_rule
from .sqlbuild_artifacts import Artifacts
from .sqlbuild_config import sqlbuild_connection

_COMPILED = frozenset({"model", "seed", "udf", "table_fn", "function"})
_COUNTED: Mapping[str, tuple[str, ...]] = {
    "selected_models": ("model",),
    "selected_seeds": ("seed",),
}
_NAME_DIGITS = 16


def resolve_sqlbuild(context: ToolContext, requests: Sequence[SelectionRequest]) -> list[ToolGraph]:
    """One graph per (target, variables). Raises ``ToolMissing``, ``CompileFailed`` or ``InvalidSelection``."""
    program = context.python.parent / "sqb"
    if context.version is None or not program.is_file():
        raise ToolMissing(
            f"{context.python} has no sqlbuild; install it with: {install_command(context.python, 'sqlbuild')} "
            "(it needs Python 3.12 to 3.14)",
            facts={"interpreter": str(context.python), "missing": "sqlbuild"},
        )
    return [_Group(context, key).graph(wanted) for key, wanted in grouped(requests).items()]


class _Group:
    """The invocations for one (target, variables)."""

    def __init__(self, context: ToolContext, key: GroupKey) -> None:
        self._context = context
        self._target, self._variables = key
        self._resolved: dict[str, tuple[str, ...]] = {}

    def graph(self, wanted: Sequence[SelectionRequest]) -> ToolGraph:
        folder = self._context.project.tool_folder
        nodes_file = (
            self._context.work_dir.resolve() / f"sqb-{digest_of([self._target, self._variables])[:_NAME_DIGITS]}.json"
        )
        report = self._compile("whole project", ["--dag", str(nodes_file), "--manifest"])
        if "stopped" in report or report.get("has_errors"):
            raise CompileFailed(f"sqb cannot compile the project: {_diagnostics(report)}")
        manifest = json.loads((folder / "target" / "manifest.json").read_bytes())
        adapter = str(manifest["metadata"]["adapter_type"])
        connection = sqlbuild_connection(folder, self._target) or Connection(adapter, None, None)
        dag = json.loads(nodes_file.read_bytes())
        nodes = Artifacts(dag, manifest, folder, naming_rule(adapter), connection.database).nodes()
        return ToolGraph(
            tool_version=self._context.version or "",
            adapter=adapter,
            connection=connection,
            nodes=nodes,
            selected={request.job: self._selected(request, nodes) for request in wanted},
            database=connection.database,
        )

    def _selected(self, request: SelectionRequest, nodes: Mapping[str, Node]) -> tuple[str, ...]:
        build = _sqlbuild(request)
        key = digest_of([build.select, build.exclude])
        if key not in self._resolved:
            whole = not build.select and not build.exclude
            self._resolved[key] = tuple(nodes) if whole else self._resolve(request, build, nodes)
        kept = _runs(self._resolved[key], build, nodes)
        if not kept and request.on_empty != "succeed":
            raise EmptySelection(
                f"{request.job}: select {list(build.select)} without {list(build.exclude)} leaves no node; "
                'widen it, or set on_empty="succeed"'
            )
        return kept

    def _resolve(self, request: SelectionRequest, build: SqlBuild, nodes: Mapping[str, Node]) -> tuple[str, ...]:
        selection = [
            *(["--select", *build.select] if build.select else []),
            *(["--exclude", *build.exclude] if build.exclude else []),
        ]
        report = self._compile(request.job, selection)
        if "stopped" in report or report.get("has_errors"):
            raise InvalidSelection(f"{request.job}: {_diagnostics(report)}")
        listed = self._listed(request.job, build, nodes)
        if not any(report["summary"].get(name) for name in (*_COUNTED, "selected_functions")):
            # emptied by its excludes: lineage then shows the selection without them
            return tuple(node for node in listed if node in nodes and not _is_compiled(node))
        _check_counts(request.job, listed, report["summary"])
        return tuple(node for node in listed if node in nodes)

    def _compile(self, subject: str, arguments: Sequence[str]) -> dict[str, Any]:
        options = ["--target", self._target, "--vars", self._variables, "--json"]
        return self._run(subject, ["compile", *options, *arguments])

    def _listed(self, job: str, build: SqlBuild, nodes: Mapping[str, Node]) -> tuple[str, ...]:
        """The ids that the selection names; without ``select``, the excludes take from the whole project."""
        exclude = ["--exclude", *build.exclude] if build.exclude else []
        if build.select:
            select = ["--select", *build.select]
        else:
            everything = self._context.work_dir.resolve() / "sqb-everything.txt"
            everything.write_text("\n".join(map(_selector, filter(_is_compiled, nodes))) + "\n", encoding="utf-8")
            select = ["--select-file", str(everything)]
        report = self._run(job, ["lineage", "--json", "--vars", self._variables, *select, *exclude])
        return tuple(sorted(entry["id"] for entry in report["nodes"]))

    def _run(self, subject: str, arguments: Sequence[str]) -> dict[str, Any]:
        context = self._context
        argv = [str(context.python.parent / "sqb"), "--no-color", *arguments]
        finished = run_to_end(
            argv, cwd=context.project.tool_folder, log_dir=context.work_dir, name=f"sqb-{arguments[0]}",
            path_first=context.python.parent,
        )  # fmt: skip
        output = context.work_dir / f"sqb-{arguments[0]}.out"
        try:
            report: dict[str, Any] = json.loads(output.read_bytes())
        except ValueError:
            reason = last_line(finished.stderr) or "it said nothing"
            raise CompileFailed(f"sqb {arguments[0]} ({subject}) ended with code {finished.code}: {reason}") from None
        return report


def _sqlbuild(request: SelectionRequest) -> SqlBuild:
    if not isinstance(request.build, SqlBuild):
        raise CompileFailed(f"{request.job}: not an sqb build")
    return request.build


def _is_compiled(node: str) -> bool:
    return node.partition(":")[0] in _COMPILED


def _selector(node: str) -> str:
    kind, _, name = node.partition(":")
    return node if kind == "seed" else name


def _runs(selected: Sequence[str], build: SqlBuild, nodes: Mapping[str, Node]) -> tuple[str, ...]:
    """What a build works on: the selected nodes, and the managed sources that it loads for them."""
    chosen = {node for node in selected if node in nodes and nodes[node].writes}
    if build.load != "off":
        upstream = {parent for node in chosen for parent in nodes[node].depends_on if parent in nodes}
        chosen |= {node for node in upstream if nodes[node].kind == "source" and nodes[node].writes}
    else:
        chosen = {node for node in chosen if nodes[node].kind != "source"}
    return tuple(sorted(chosen))


def _check_counts(job: str, listed: Sequence[str], summary: Mapping[str, Any]) -> None:
    found = Counter(node.partition(":")[0] for node in listed)
    for name, kinds in _COUNTED.items():
        if sum(found[kind] for kind in kinds) != summary.get(name):
            raise CompileFailed(
                f"{job}: sqb lineage lists {sum(found[kind] for kind in kinds)} {name.removeprefix('selected_')} and "
                f"sqb compile counts {summary.get(name)}; this release of sqlbuild is not known to work"
            )


def _diagnostics(report: Mapping[str, Any]) -> str:
    errors = [entry for entry in report.get("diagnostics", ()) if entry.get("severity") == "error"]
    texts = [" ".join(str(part) for part in (entry.get("code"), entry.get("message")) if part) for entry in errors]
    return "; ".join(texts[:3]) or "it gave no reason"
