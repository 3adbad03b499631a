"""Compile and publish the projects at start, and again when their files change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from watchfiles import Change, watch

from ..bootstrap import Services
from ..client.api import ApiClient
from ..client.publishing import publish_bundle
from ..kernel.errors import TidemillError
from ..kernel.limits import PAGE_MAX
from ..locations.model import TargetSettings, TargetView
from ..locations.service import LocationService
from ..projects.compilation import Compilation
from ..projects.compile import compile_project
from ..projects.project_file import ALWAYS_EXCLUDED, FILE_NAME, load_project_file
from .troubles import Say

_LOGGER = logging.getLogger("tidemill.local.publisher")
# What runs and tools write into a project, beyond what the project file's own rules leave out.
_NEVER = ("*.duckdb*", "*~", "*.swp", "*.tmp")
_DEBOUNCE_MS = 300
_LOOK_MS = 200
_AGAIN_SECONDS = 5.0
# What passes by itself: a database that is restarted, a run that still holds the target.
_PASSING = frozenset({"unavailable", "timeout", "throttled", "has_live_claims"})


@dataclass(frozen=True, slots=True)
class LocalProject:
    """One project folder, where it belongs, and the client that may publish there."""

    folder: Path
    location: str
    api: ApiClient


class ProjectPublisher:
    """A thread that publishes the projects one after another. A project that does not compile keeps what it has."""

    def __init__(self, services: Services, projects: Sequence[LocalProject], work_dir: Path, say: Say) -> None:
        self._services = services
        self._projects = projects
        self._work_dir = work_dir
        self._say = say
        self._stop = threading.Event()
        self._published: dict[Path, tuple[str, TargetSettings]] = {}
        self._failures: dict[Path, str] = {}
        # When to publish which project next, in seconds of the stopwatch; without an entry: when a file changes.
        self._due = {project.folder: 0.0 for project in projects}
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        """Publish all, then watch."""
        if self._projects:
            self._thread.start()

    def stop(self) -> None:
        """Stop watching; a compile in progress is waited for (it is bounded)."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            # The watch begins before the first compile, so that no edit falls between.
            for changes in watch(
                *(project.folder for project in self._projects),
                watch_filter=self._matters,
                debounce=_DEBOUNCE_MS,
                rust_timeout=_LOOK_MS,
                yield_on_timeout=True,
                stop_event=self._stop,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                self._publish_waiting(changes)
        except Exception as error:
            _LOGGER.exception("watching failed")
            self._say(f"project files are no longer watched ({error}); publish changes with `tidemill publish`")

    def _matters(self, change: Change, path: str) -> bool:
        del change
        return any(is_project_file(project.folder, Path(path)) for project in self._projects)

    def _publish_waiting(self, changes: Iterable[tuple[Change, str]]) -> None:
        paths = [Path(path) for _, path in changes]
        for project in self._projects:
            if any(is_project_file(project.folder, path) for path in paths):
                self._due[project.folder] = 0.0
            due = self._due.get(project.folder)
            if due is None or due > self._services.clock.elapsed_seconds() or self._stop.is_set():
                continue
            del self._due[project.folder]
            if self._publish(project):
                self._due[project.folder] = self._services.clock.elapsed_seconds() + _AGAIN_SECONDS

    def _publish(self, project: LocalProject) -> bool:
        """Try once; whether to try again although no file changes."""
        try:
            text = self._compile_and_publish(project)
        except TidemillError as error:
            self._tell_failure(project, error.detail)
            return error.code in _PASSING
        except Exception as error:
            _LOGGER.exception("publishing %s failed", project.folder)
            self._tell_failure(project, f"{type(error).__name__}: {error}")
            return False
        if text or project.folder in self._failures:
            self._say(f"{project.folder.name}: {text or 'compiles again, and what is published is current'}")
        self._failures.pop(project.folder, None)
        return False

    def _tell_failure(self, project: LocalProject, detail: str) -> None:
        if self._failures.get(project.folder) != detail:
            self._failures[project.folder] = detail
            self._say(f"{project.folder.name}: not published, what was published before stays: {detail}")

    def _compile_and_publish(self, project: LocalProject) -> str:
        """What to tell about it; empty when what is published is current."""
        clock = self._services.clock
        work_dir = self._work_dir / project.location
        compiled = compile_project(project.folder, target=None, python=None, now=clock.now(), work_dir=work_dir)
        _check_location(project, compiled)
        settings = settings_of(compiled)
        if self._published.get(project.folder) == (compiled.snapshot_id, settings):
            return ""
        for warning in compiled.warnings:
            self._say(f"{project.folder.name}: warning: {warning.subject}: {warning.message}")
        self._set_target(compiled, settings)
        publish_bundle(
            project.api,
            compiled.bundle,
            location=compiled.location,
            target=compiled.target,
            publication_id=self._services.ids.mint("pub"),
            connection_fingerprint=compiled.connection_fingerprint,
            say=lambda text: _LOGGER.debug("%s", text),
        )
        self._published[project.folder] = (compiled.snapshot_id, settings)
        return _published_text(compiled)

    def _set_target(self, compiled: Compilation, settings: TargetSettings) -> None:
        # The whole settings are replaced; the environment is not in the project file, so it is taken over.
        present = find_target(self._services.locations, compiled.location, compiled.target)
        environment = present.environment if present is not None else {}
        complete = settings.model_copy(update={"environment": environment})
        self._services.locations.set_target(compiled.location, compiled.target, complete)


def find_target(locations: LocationService, location: str, target: str) -> TargetView | None:
    """The target's settings as they apply, ``None`` where there is no such target yet."""
    cursor: str | None = None
    while True:
        page = locations.list(PAGE_MAX, cursor)
        for view in page.items:
            if view.location == location:
                return next((found for found in view.targets if found.target == target), None)
        cursor = page.next_cursor
        if cursor is None:
            return None


def settings_of(compiled: Compilation) -> TargetSettings:
    """What the project file says about the target, as the store keeps it."""
    return TargetSettings(
        warehouse=compiled.warehouse,
        settle_seconds=compiled.settle_seconds,
        single_writer=compiled.single_writer,
        case_rule=compiled.index.case_rule,
    )


def is_project_file(folder: Path, path: Path) -> bool:
    """Whether a change of ``path`` may change what the project in ``folder`` compiles to."""
    if not path.is_relative_to(folder):
        return False
    parts = path.relative_to(folder).parts
    if parts == (FILE_NAME,):
        return True
    if _matches(parts, (*ALWAYS_EXCLUDED, *_NEVER)):  # first, since our own data folder changes all the time
        return False
    watched, excluded = _rules(folder)
    return not _matches(parts, excluded) and any(path.is_relative_to((folder / place).resolve()) for place in watched)


def _matches(parts: Iterable[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(part, pattern) for part in parts for pattern in patterns)


def _rules(folder: Path) -> tuple[Sequence[str], Sequence[str]]:
    try:
        project = load_project_file(folder)
    except TidemillError:
        return (".",), ALWAYS_EXCLUDED
    return project.watch, project.excluded()


def _touches(folder: Path, changes: Iterable[tuple[Change, str]]) -> bool:
    return any(is_project_file(folder, Path(path)) for _, path in changes)


def _check_location(project: LocalProject, compiled: Compilation) -> None:
    if compiled.location != project.location:
        raise TidemillError(
            f"the location changed from {project.location} to {compiled.location}; stop tidemill dev and start it again"
        )


def _published_text(compiled: Compilation) -> str:
    jobs = len(compiled.index.jobs)
    return (
        f"published {jobs} job{'' if jobs == 1 else 's'} to {compiled.location}/{compiled.target} "
        f"(snapshot {compiled.snapshot_id[:12]})"
    )
