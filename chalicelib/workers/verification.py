"""Verify before anything starts: inputs, then what is on disk against the pinned snapshot (scheduler.md 8.1, step 4)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ..authoring.builds import Build, Command, Dbt, SqlBuild
from ..kernel.canonical import digest_of
from ..kernel.errors import Drift, InvalidInputs, TidemillError
from ..projects.command import verified_nodes
from ..projects.compilation import Compilation
from ..projects.compile import compile_project
from ..projects.inputs import AppliedInputs, apply_inputs
from ..projects.interpreters import project_python
from ..projects.project_file import load_project_file
from ..projects.verify import compare, refuse_drift
from ..runs.model import RunInputs
from .runners.plan import RunPlan

_REFERENCE = "secret:"


@dataclass(frozen=True, slots=True)
class Project:
    """A project on this worker's disk; ``python`` overrides the interpreter that its file names."""

    folder: Path
    python: Path | None = None


class Verifier:
    """Compiles the projects of this worker, one at a time each: a tool's own artefacts do not stand two compiles."""

    def __init__(
        self, projects: Mapping[str, Project], work_dir: Path, resolve_secret: Callable[[str], str] | None = None
    ) -> None:
        self._projects = dict(projects)
        self._work_dir = work_dir
        self._resolve_secret = resolve_secret
        self._locks = {location: threading.Lock() for location in projects}

    @property
    def locations(self) -> tuple[str, ...]:
        """The locations that this worker serves."""
        return tuple(sorted(self._projects))

    def verify(self, inputs: RunInputs, run_folder: Path, now: datetime) -> RunPlan:
        """The plan of the run. Raises ``InvalidInputs`` or ``Drift``: then nothing was started."""
        if digest_of(inputs.inputs) != inputs.inputs_hash:
            raise InvalidInputs.of_field("inputs", "their hash differs from the one that the run is pinned to")
        applied = apply_inputs(inputs.definition, inputs.inputs)
        project = self._projects.get(inputs.location)
        if project is None:
            raise Drift(f"this worker has no project for the location {inputs.location}; start it with --project DIR")
        with self._locks[inputs.location]:
            compilation = self._compiled(inputs, project, now)
        if compilation.index.baseline != inputs.baseline_hash:
            refuse_drift(compare(inputs.drift_keys, verified_nodes(inputs.definition), compilation))
        environment, secrets = self._environment(inputs)
        return replace(_plan(inputs, applied, project, run_folder), target_environment=environment, secrets=secrets)

    def _environment(self, inputs: RunInputs) -> tuple[dict[str, str], tuple[str, ...]]:
        """The target's environment with its secret references resolved just before the child, and their values."""
        secrets = {}
        for name, value in inputs.environment.items():
            if not value.startswith(_REFERENCE):
                continue
            if self._resolve_secret is None:
                raise InvalidInputs.of_field(
                    f"environment.{name}", "this worker cannot read secrets; give it the value"
                )
            secrets[name] = self._resolve_secret(value.removeprefix(_REFERENCE))
        return {**inputs.environment, **secrets}, tuple(secrets.values())

    def _compiled(self, inputs: RunInputs, project: Project, now: datetime) -> Compilation:
        work_dir = self._work_dir / inputs.location / inputs.target
        try:
            return compile_project(
                project.folder, target=inputs.target, python=project.python, now=now, work_dir=work_dir
            )
        except (TidemillError, OSError) as error:
            text = error.detail if isinstance(error, TidemillError) else str(error)
            raise Drift(f"the project in {project.folder} does not compile for {inputs.target}: {text}") from error


def _plan(inputs: RunInputs, applied: AppliedInputs, project: Project, run_folder: Path) -> RunPlan:
    declared = load_project_file(project.folder)
    _, settings = declared.choose_target(inputs.target)
    return RunPlan(
        inputs=inputs,
        build=build_with(inputs.definition.build, applied),
        run_folder=run_folder,
        project_folder=declared.folder if isinstance(inputs.definition.build, Command) else declared.tool_folder,
        python=project_python(declared, project.python),
        profiles_dir=declared.tool_folder / (settings.profiles_dir or "."),
        extra_environment=applied.env,
        extra_options=extra_options(inputs.definition.build, applied),
    )


def build_with(build: Build, applied: AppliedInputs) -> Build:
    """The job's build with the run's inputs in it; a narrowed selection replaces select and exclude."""
    if isinstance(build, Command):
        return build
    changes: dict[str, Any] = {"vars": {**build.vars, **applied.vars}}
    if "full_refresh" in applied.options:
        changes["full_refresh"] = bool(applied.options["full_refresh"])
    if isinstance(build, SqlBuild):
        changes |= {name: applied.options[name] for name in ("start", "end") if name in applied.options}
    if applied.selection is not None:
        changes |= {"select": tuple(_selector(build, node) for node in applied.selection), "exclude": ()}
    return build.model_copy(update=changes)


def extra_options(build: Build, applied: AppliedInputs) -> tuple[str, ...]:
    """What the build record has no field for: typed cursors of sqb, the event time of dbt."""
    if isinstance(build, SqlBuild):
        cursors = sorted(applied.cursors.items())
        return tuple(part for name, (kind, text) in cursors for part in (f"--{name}-cursor-{kind}", text))
    if isinstance(build, Dbt):
        times = [(name, applied.options[name]) for name in ("start", "end") if name in applied.options]
        return tuple(part for name, text in times for part in (f"--event-time-{name}", str(text)))
    return ()


def _selector(build: SqlBuild | Dbt, node: str) -> str:
    """How the tool selects one node: sqb by its name, dbt by the name in ``kind.package.name``."""
    if isinstance(build, SqlBuild):
        return node.partition(":")[2]
    parts = node.split(".")
    return parts[2] if len(parts) > 2 else node  # noqa: PLR2004 - kind.package.name
