"""Start the collector in the project's interpreter and read its answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from ..kernel.errors import (
    CompileFailed,
    FieldError,
    InvalidDeclaration,
    InvalidSchedule,
    TidemillError,
    ToolMissing,
)
from .drafts import Collected
from .interpreters import install_command
from .processes import Finished, run_to_end
from .project_file import ProjectFile

_ERRORS: Mapping[str, type[TidemillError]] = {
    error.code: error for error in (InvalidDeclaration, InvalidSchedule, CompileFailed)
}


def collect_project(project: ProjectFile, python: Path, work_dir: Path) -> Collected:
    """What the project declares.

    Raises ``ToolMissing`` when the interpreter lacks tidemill, ``InvalidDeclaration`` for what user code does wrong,
    ``CompileFailed`` when the process ends without an answer.
    """
    result = work_dir / "collected.json"
    result.parent.mkdir(parents=True, exist_ok=True)
    result.unlink(missing_ok=True)
    argv = [str(python), "-P", "-m", "tidemill.projects.collector", str(result.resolve()), str(project.folder)]
    finished = run_to_end([*argv, *project.modules], cwd=project.folder, log_dir=work_dir, name="collector")
    if not result.is_file():
        raise _without_answer(python, finished)
    collected = _read(result, python)
    if collected.error is not None:
        fields = [FieldError(*field) for field in collected.error.fields]
        raise _ERRORS.get(collected.error.code, CompileFailed)(collected.error.detail, fields=fields)
    return collected


def _read(result: Path, python: Path) -> Collected:
    try:
        return Collected.model_validate_json(result.read_bytes())
    except ValidationError:
        raise CompileFailed(
            f"the tidemill in {python} is another release than this one; install the same release in both"
        ) from None


def _without_answer(python: Path, finished: Finished) -> TidemillError:
    missing = missing_module(finished.stderr)
    if missing is not None:
        return ToolMissing(
            f"{python} has no {missing}; install it with: {install_command(python, *_packages(missing))}",
            facts={"interpreter": str(python), "missing": missing},
        )
    if "unknown option -P" in finished.stderr.lower():
        return ToolMissing(f"{python} is older than Python 3.11; make the project's environment with a newer one")
    last = last_line(finished.stderr) or last_line(finished.stdout) or "it said nothing"
    return CompileFailed(f"collecting the jobs ended with code {finished.code} and no answer; last line: {last}")


def missing_module(stderr: str) -> str | None:
    """The top-level module that an interpreter said it lacks, or ``None``."""
    marker = "No module named "
    lines = [line for line in stderr.splitlines() if marker in line]
    if not lines:
        return None
    return lines[-1].partition(marker)[2].split(")")[0].strip("'\" ").partition(".")[0]


def _packages(missing: str) -> Iterator[str]:
    yield "tidemill"
    if missing == "pydantic":
        yield "pydantic"


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
