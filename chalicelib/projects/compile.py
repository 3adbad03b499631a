"""From a project folder to a bundle: collect, check, resolve, describe (scheduler.md 4.3)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from ..authoring.builds import Command, Dbt, SqlBuild
from ..authoring.naming import check_run_sensors
from ..cron import validate
from ..kernel.errors import FieldError, InvalidDeclaration, InvalidSchedule
from .bundle import Tool
from .collecting import collect_project
from .compilation import Compilation
from .dbt import resolve_dbt
from .drafts import JobDraft
from .git import git_record
from .graph import CompileWarning, SelectionRequest, ToolContext, ToolGraph
from .indexing import build_index
from .inputs import check_defaults
from .interpreters import project_python
from .project_file import ProjectFile, TargetSettings, load_project_file
from .resolution import Resolution
from .sqlbuild import resolve_sqlbuild

_DISTRIBUTION = {"sqb": "sqlbuild", "dbt": "dbt-core"}


def compile_project(
    project_dir: Path, *, target: str | None, python: Path | None, now: datetime, work_dir: Path
) -> Compilation:
    """Compile the project in ``project_dir`` for one target.

    ``work_dir`` holds logs and the caches of the tools; keeping it makes the next compile faster. Raises
    ``InvalidDeclaration``, ``InvalidSchedule``, ``InvalidSelection``, ``EmptySelection``, ``ToolMissing`` or
    ``CompileFailed``; nothing is left in the store by any of them (S1).
    """
    project = load_project_file(project_dir)
    name, settings = project.choose_target(target)
    work_dir.mkdir(parents=True, exist_ok=True)
    interpreter, drafts, packages = _declared(project, python, work_dir)
    chosen = tuple(_aimed(draft, name, settings, project) for draft in drafts if _is_for(draft, name, project))
    checked = _checked(chosen, now)
    tool = _tool_of(chosen)
    graphs: list[ToolGraph] = []
    if interpreter is not None and tool != "command":
        version = packages.get(_DISTRIBUTION[tool])
        graphs = _resolve(tool, ToolContext(project, settings, interpreter, work_dir, version), chosen)
    resolution = Resolution(tool, tuple(graphs), chosen)
    bundle = build_index(project, resolution, git_record(project.folder, dict(os.environ)))
    for definition in bundle.index.jobs.values():
        check_defaults(definition)
    return Compilation(
        bundle=bundle,
        project_dir=project.folder,
        location=project.location,
        target=name,
        python=interpreter,
        single_writer=settings.single_writer,
        warehouse=settings.warehouse or f"{project.location}/{name}",
        settle_seconds=settings.effective_settle_seconds(),
        connection_fingerprint=graphs[0].connection.fingerprint() if graphs else None,
        warnings=(*checked, *resolution.warnings()),
    )


def _checked(drafts: Sequence[JobDraft], now: datetime) -> tuple[CompileWarning, ...]:
    """Schedules and sensors, before a tool is started."""
    check_run_sensors({draft.job: draft.watches for draft in drafts})
    return (*_schedule_warnings(drafts, now), *_sensor_warnings(drafts))


def _declared(
    project: ProjectFile, python: Path | None, work_dir: Path
) -> tuple[Path | None, tuple[JobDraft, ...], Mapping[str, str]]:
    if project.jobs is not None:  # an explicit "no jobs" imports no user code and needs no interpreter
        return None, (), {}
    interpreter = project_python(project, python)
    collected = collect_project(project, interpreter, work_dir)
    return interpreter, collected.jobs, collected.packages


def _is_for(draft: JobDraft, target: str, project: ProjectFile) -> bool:
    unknown = sorted(set(draft.targets or ()) - set(project.targets))
    if unknown:
        raise InvalidDeclaration.of_field(
            f"{draft.job}.targets", f"tidemill.toml has no [targets.{unknown[0]}]; it has {', '.join(project.targets)}"
        )
    return draft.targets is None or target in draft.targets


def _aimed(draft: JobDraft, target: str, settings: TargetSettings, project: ProjectFile) -> JobDraft:
    """The draft with the tool's target filled in, so that a runner needs no look at the project file."""
    if isinstance(draft.build, Command):
        _check_inside(draft.job, draft.build, project)
        return draft
    aimed = draft.build.model_copy(update={"target": draft.build.target or settings.tool_target or target})
    return draft.model_copy(update={"build": aimed})


def _check_inside(job: str, build: Command, project: ProjectFile) -> None:
    folder = (project.folder / (build.cwd or ".")).resolve()
    if not folder.is_relative_to(project.folder) or not folder.is_dir():
        raise InvalidDeclaration.of_field(f"{job}.build.cwd", f"{build.cwd!r} is no folder of the project")


def _schedule_warnings(drafts: Iterable[JobDraft], now: datetime) -> Iterable[CompileWarning]:
    for draft in drafts:
        for trigger in draft.triggers:
            if trigger.kind != "schedule":
                continue
            try:
                checked = validate(str(trigger.spec["cron"]), str(trigger.spec["timezone"]), after=now)
            except InvalidSchedule as problem:
                fields = [FieldError(f"{trigger.name}.{one.field}", one.code, one.message) for one in problem.fields]
                raise InvalidSchedule(f"{trigger.name} ({draft.place}): {problem.detail}", fields=fields) from None
            yield from (CompileWarning("schedule", trigger.name, text) for text in checked.warnings)


def _sensor_warnings(drafts: Iterable[JobDraft]) -> Iterable[CompileWarning]:
    for draft in drafts:
        for trigger in draft.triggers:
            if trigger.kind != "schedule":
                yield CompileWarning(
                    "sensor_not_evaluated",
                    trigger.name,
                    f"{trigger.kind} sensor: stored; not evaluated by this release yet",
                )


def _tool_of(drafts: Iterable[JobDraft]) -> Tool:
    by_kind: dict[str, str] = {}
    for draft in drafts:
        by_kind.setdefault(draft.build.kind, draft.job)
    if {"sqb", "dbt"} <= by_kind.keys():
        raise InvalidDeclaration(
            f"one project uses one tool, but {by_kind['sqb']!r} is an SqlBuild and {by_kind['dbt']!r} a Dbt job; "
            "make two projects"
        )
    return "sqb" if "sqb" in by_kind else "dbt" if "dbt" in by_kind else "command"


def _resolve(tool: Tool, context: ToolContext, drafts: Sequence[JobDraft]) -> list[ToolGraph]:
    requests = [
        SelectionRequest(draft.job, draft.build, draft.on_empty)
        for draft in drafts
        if isinstance(draft.build, SqlBuild | Dbt)
    ]
    return resolve_sqlbuild(context, requests) if tool == "sqb" else resolve_dbt(context, requests)
