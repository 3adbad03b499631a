"""dbt: one session per compile, in the project's interpreter (see ``dbt_session.py`` for why)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..authoring.builds import Dbt
from ..kernel.canonical import digest_of
from ..kernel.errors import CompileFailed, EmptySelection, InvalidSelection, ToolMissing
from .collecting import last_line, missing_module
from .dbt_manifest import RUN_BY, has_run_hooks, manifest_nodes
from .graph import CompileWarning, Connection, GroupKey, Node, SelectionRequest, ToolContext, ToolGraph, grouped
from .interpreters import install_command
from .processes import Finished, run_to_end
from .relations import naming_rule

_GROUP_DIGITS = 16


def resolve_dbt(context: ToolContext, requests: Sequence[SelectionRequest]) -> list[ToolGraph]:
    """One graph per (target, variables). Raises ``ToolMissing``, ``CompileFailed`` or ``InvalidSelection``.

    A ``work_dir`` that is kept makes the next compile faster: dbt's partial parse lives there.
    """
    if context.version is None:
        raise _dbt_missing(context.python)
    groups = grouped(requests)
    paths = {key: context.work_dir / f"dbt-{digest_of(key)[:_GROUP_DIGITS]}" for key in groups}
    answered = _session(context, groups, paths)
    return [_graph(context, answer, groups[key], paths[key]) for key, answer in zip(groups, answered, strict=True)]


def _dbt_missing(python: Path) -> ToolMissing:
    return ToolMissing(
        f"{python} has no dbt; install it with: {install_command(python, 'dbt-core<1.12', 'dbt-duckdb')} "
        "(or the adapter of your warehouse)",
        facts={"interpreter": str(python), "missing": "dbt"},
    )


def _session(
    context: ToolContext, groups: Mapping[GroupKey, Sequence[SelectionRequest]], paths: Mapping[GroupKey, Path]
) -> list[dict[str, Any]]:
    project, python, work_dir = context.project, context.python, context.work_dir
    asked, result = (work_dir / "dbt-request.json").resolve(), (work_dir / "dbt-result.json").resolve()
    result.unlink(missing_ok=True)
    profiles = project.tool_folder / (context.settings.profiles_dir or ".")
    request = {
        "project_dir": str(project.tool_folder),
        "profiles_dir": str(profiles),
        "groups": [_group(key, wanted, paths[key].resolve()) for key, wanted in groups.items()],
    }
    asked.write_text(json.dumps(request), encoding="utf-8")
    argv = [str(python), "-P", "-m", "tidemill.projects.dbt_session", str(asked), str(result)]
    finished = run_to_end(argv, cwd=project.tool_folder, log_dir=work_dir, name="dbt", path_first=python.parent)
    if not result.is_file():
        raise _without_answer(python, finished)
    answered: list[dict[str, Any]] = json.loads(result.read_bytes())["groups"]
    if "error" in answered[-1]:
        raise CompileFailed(f"dbt cannot parse the project: {_one_line(answered[-1]['error'])}")
    return answered


def _group(key: GroupKey, wanted: Sequence[SelectionRequest], path: Path) -> dict[str, object]:
    target, variables = key
    return {
        "target": target,
        "vars": json.loads(variables),
        "target_path": str(path),
        "log_path": str(path / "logs"),
        "selections": [{"job": request.job, "arguments": selection_arguments(_dbt(request))} for request in wanted],
    }


def _dbt(request: SelectionRequest) -> Dbt:
    if not isinstance(request.build, Dbt):
        raise CompileFailed(f"{request.job}: not a dbt build")
    return request.build


def selection_arguments(build: Dbt) -> list[str]:
    """The selection part of a dbt command line."""
    return [
        *(["--select", *build.select] if build.select else []),
        *(["--exclude", *build.exclude] if build.exclude else []),
        *(["--selector", build.selector] if build.selector else []),
    ]


def _without_answer(python: Path, finished: Finished) -> CompileFailed | ToolMissing:
    if missing_module(finished.stderr) == "dbt":
        return _dbt_missing(python)
    last = last_line(finished.stderr) or last_line(finished.stdout) or "it said nothing"
    return CompileFailed(f"dbt ended with code {finished.code} and no answer; last line: {last}")


def _graph(
    context: ToolContext, answer: Mapping[str, Any], wanted: Sequence[SelectionRequest], path: Path
) -> ToolGraph:
    manifest = json.loads((path / "manifest.json").read_bytes())
    facts = answer["connection"]
    nodes = manifest_nodes(manifest, naming_rule(facts["adapter"]), context.project.tool_folder)
    selected, warnings = {}, []
    for request in wanted:
        selected[request.job], unmatched = _selected(request, answer["selections"][request.job], nodes)
        warnings.extend(unmatched)
    return ToolGraph(
        tool_version=context.version or "",
        adapter=facts["adapter"],
        connection=Connection(facts["adapter"], _place(facts, context.project.tool_folder), facts["database"]),
        nodes=nodes,
        selected=selected,
        run_hooks=has_run_hooks(manifest),
        database=facts["database"],
        schema=facts["schema"],
        warnings=tuple(warnings),
    )


def _place(facts: Mapping[str, Any], folder: Path) -> str | None:
    place: str | None = facts["place"]
    if facts["adapter"] == "duckdb" and place and "://" not in place and not place.startswith(("md:", ":memory:")):
        return str((folder / place).resolve())
    return place


def _selected(
    request: SelectionRequest, answer: Mapping[str, Any], nodes: Mapping[str, Node]
) -> tuple[tuple[str, ...], list[CompileWarning]]:
    build = _dbt(request)
    if "error" in answer:
        raise InvalidSelection(f"{request.job}: {_one_line(answer['error'])}")
    warnings = [_unmatched(request, build, criterion) for criterion in answer["unmatched"]]
    kept = tuple(node for node in answer["nodes"] if node in nodes and nodes[node].kind in RUN_BY[build.command])
    if not kept and request.on_empty != "succeed":
        raise EmptySelection(
            f"{request.job}: nothing that dbt {build.command} runs is selected by {' '.join(selection_arguments(build))}"
            '; widen it, or set on_empty="succeed"'
        )
    return kept, warnings


def _unmatched(request: SelectionRequest, build: Dbt, criterion: str) -> CompileWarning:
    """A selector that matches nothing is an error; an exclude that matches nothing excludes nothing."""
    in_select = any(criterion in text.split() for text in build.select)
    if in_select and request.on_empty != "succeed":
        raise InvalidSelection(
            f"{request.job}: the selector {criterion!r} matches no node of the dbt project; fix or remove it"
        )
    return CompileWarning("selector_matches_nothing", request.job, f"{criterion!r} matches no node of the dbt project")


def _one_line(text: str) -> str:
    return " ".join(text.split())
