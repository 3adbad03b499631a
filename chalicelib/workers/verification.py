"""Verify before anything starts: inputs, then what is on disk against the pinned snapshot (scheduler.md 8.1, step 4)."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..authoring.builds import Build, Command, Dbt, SqlBuild
from ..kernel.canonical import digest_of
from ..kernel.clock import Clock
from ..kernel.errors import Drift, InvalidInputs, TidemillError, Unavailable
from ..projects.compilation import Compilation
from ..projects.compile import compile_project
from ..projects.inputs import AppliedInputs, apply_inputs
from ..projects.interpreters import project_python
from ..projects.processes import running_programs_by
from ..projects.project_file import load_project_file
from ..projects.verify import compare, refuse_drift
from ..runs.model import RunInputs
from .compiling import OwnedPrograms, SharedCompiles
from .masking import Mask
from .narrowing import narrowed, nodes_to_verify
from .process import Account
from .runners.plan import RunPlan
from .session import GaveUp

_REFERENCE = "secret:"
_LOOK_SECONDS = 0.1
# What says nothing about the project: the machine is full or broken.
_MACHINE_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)


@dataclass(frozen=True, slots=True)
class Project:
    """A project on this worker's disk; ``python`` overrides the interpreter that its file names."""

    folder: Path
    python: Path | None = None


class Verifier:
    """Compiles the projects of this worker, one at a time each: a tool's own artefacts do not stand two compiles.

    ``resolve_secret`` gives the value of a reference and raises ``InvalidInputs`` for one that it cannot read and
    ``Unavailable`` for a store that does not answer. ``account`` is who the project's code runs as.
    """

    def __init__(
        self,
        projects: Mapping[str, Project],
        work_dir: Path,
        clock: Clock,
        resolve_secret: Callable[[str], str] | None = None,
        account: Account | None = None,
    ) -> None:
        self._projects = dict(projects)
        self._work_dir = work_dir
        self._clock = clock
        self._resolve_secret = resolve_secret
        self._account = account
        self._locks = {location: threading.Lock() for location in projects}
        self._compiles = SharedCompiles()

    @property
    def locations(self) -> tuple[str, ...]:
        """The locations that this worker serves."""
        return tuple(sorted(self._projects))

    def verify(self, inputs: RunInputs, run_folder: Path, stopped: threading.Event) -> RunPlan:
        """The plan of the run. Raises ``InvalidInputs`` or ``Drift``: then nothing was started.

        ``stopped`` interrupts it (``GaveUp``).
        """
        if digest_of(inputs.inputs) != inputs.inputs_hash:
            raise InvalidInputs.of_field("inputs", "their hash differs from the one that the run is pinned to")
        applied = apply_inputs(inputs.definition, inputs.inputs)
        project = self._projects.get(inputs.location)
        if project is None:
            raise Drift(f"this worker has no project for the location {inputs.location}; start it with --project DIR")
        environment, secrets = self._environment(inputs)
        try:
            compilation = self._compiled(inputs, project, environment, stopped)
        except Drift as drift:
            raise Drift(Mask(secrets).of_text(drift.detail)) from None
        if compilation.index.baseline != inputs.baseline_hash:
            refuse_drift(compare(inputs.drift_keys, nodes_to_verify(inputs), compilation))
        plan = replace(_plan(inputs, applied, project, run_folder), target_environment=environment, secrets=secrets)
        return narrowed(plan, compilation)

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
            try:
                secrets[name] = self._resolve_secret(value.removeprefix(_REFERENCE))
            except InvalidInputs as error:
                raise InvalidInputs.of_field(f"environment.{name}", error.detail) from None
            except Unavailable as error:
                raise Unavailable(f"environment.{name}: {error.detail}") from None
        return {**inputs.environment, **secrets}, tuple(secrets.values())

    def _compiled(
        self, inputs: RunInputs, project: Project, environment: Mapping[str, str], stopped: threading.Event
    ) -> Compilation:
        work_dir = self._work_dir / inputs.location / inputs.target
        programs = OwnedPrograms(stopped, self._clock, work_dir, environment, self._account)

        def compile_now() -> Compilation:
            with self._alone(inputs.location, stopped), running_programs_by(programs):
                return self._compile(inputs.target, project, work_dir)

        place = (inputs.location, inputs.target, digest_of(dict(environment)))
        return self._compiles.compiled(place, stopped, compile_now)

    @contextmanager
    def _alone(self, location: str, stopped: threading.Event) -> Iterator[None]:
        while not self._locks[location].acquire(timeout=_LOOK_SECONDS):
            if stopped.is_set():
                raise GaveUp("stopped while another target was compiled")
        try:
            yield
        finally:
            self._locks[location].release()

    def _compile(self, target: str, project: Project, work_dir: Path) -> Compilation:
        now = self._clock.now()
        try:
            return compile_project(project.folder, target=target, python=project.python, now=now, work_dir=work_dir)
        except (TidemillError, OSError) as error:
            if isinstance(error, OSError) and error.errno in _MACHINE_ERRORS:
                raise
            text = error.detail if isinstance(error, TidemillError) else str(error)
            raise Drift(f"the project in {project.folder} does not compile for {target}: {text}") from error


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
    """The job's build with the run's inputs in it."""
    if isinstance(build, Command):
        return build
    changes: dict[str, Any] = {"vars": {**build.vars, **applied.vars}}
    if "full_refresh" in applied.options:
        changes["full_refresh"] = bool(applied.options["full_refresh"])
    if isinstance(build, SqlBuild):
        changes |= {name: applied.options[name] for name in ("start", "end") if name in applied.options}
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
