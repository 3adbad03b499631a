"""Find the jobs in what modules export (scheduler.md 4.2)."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import ModuleType

from pydantic import ValidationError

from ..kernel.errors import FieldError, InvalidDeclaration
from .jobs import Job


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job, the place where it was found (``module: variable path``)."""

    job: Job
    place: str


def collect_modules(names: Sequence[str], project_dir: Path) -> tuple[FoundJob, ...]:
    """The jobs that the modules export, by key.

    Raises ``InvalidDeclaration`` for two jobs with one key and for a module that cannot be imported; after a failed
    import no module of the project that was first imported by it stays in ``sys.modules``.
    """
    found: dict[str, FoundJob] = {}
    for name in names:
        for candidate in exported_jobs(_import(name, project_dir)):
            _keep(found, candidate)
    return tuple(found[key] for key in sorted(found))


def exported_jobs(module: ModuleType) -> Iterator[FoundJob]:
    """Every job among the public names of ``module``, in containers and dataclasses to any depth."""
    for name in _public_names(module):
        yield from _walk(getattr(module, name), f"{module.__name__}: {name}", set())


def _keep(found: dict[str, FoundJob], candidate: FoundJob) -> None:
    earlier = found.get(candidate.job.key)
    if earlier is None:
        found[candidate.job.key] = candidate
    elif earlier.job is not candidate.job:
        raise InvalidDeclaration(
            f"two jobs have the key {candidate.job.key!r}: {earlier.place} and {candidate.place}; rename one"
        )


def _public_names(module: ModuleType) -> Sequence[str]:
    declared = getattr(module, "__all__", None)
    if declared is None:
        return [name for name in vars(module) if not name.startswith("_")]
    missing = [name for name in declared if not hasattr(module, name)]
    if missing:
        raise InvalidDeclaration(f"{module.__name__}.__all__ names {missing[0]!r}, which the module does not define")
    return list(declared)


def _walk(value: object, place: str, parents: set[int]) -> Iterator[FoundJob]:
    """Depth first; ``parents`` holds the identities of the open containers, so that a cycle ends there."""
    if isinstance(value, Job):
        yield FoundJob(value, place)
        return
    children = _children(value)
    if children is None or id(value) in parents:
        return
    inside = parents | {id(value)}
    for step, child in children:
        yield from _walk(child, f"{place}{step}", inside)


def _children(value: object) -> Iterator[tuple[str, object]] | None:
    if isinstance(value, Mapping):
        return iter([(f"[{key!r}]", child) for key, child in value.items()])
    if isinstance(value, list | tuple | set | frozenset):
        return iter([(f"[{index}]", child) for index, child in enumerate(value)])
    if is_dataclass(value) and not isinstance(value, type):
        return iter([(f".{field.name}", getattr(value, field.name, None)) for field in fields(value)])
    return None


def _import(name: str, project_dir: Path) -> ModuleType:
    before = set(sys.modules)
    try:
        return importlib.import_module(name)
    except InvalidDeclaration:
        _forget(before, project_dir, name)
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        _forget(before, project_dir, name)
        raise _import_failure(name, problem, project_dir) from problem


def _forget(before: set[str], project_dir: Path, name: str) -> None:
    """Remove what the failed import left half made; modules from outside the project stay."""
    for new in set(sys.modules) - before:
        path = getattr(sys.modules[new], "__file__", None)
        if new == name or (path is not None and _inside(Path(path), project_dir)):
            del sys.modules[new]
    sys.modules.pop(name, None)
    importlib.invalidate_caches()


def _inside(path: Path, project_dir: Path) -> bool:
    resolved = path.resolve()
    return resolved.is_relative_to(project_dir.resolve()) and "site-packages" not in resolved.parts


def _import_failure(name: str, problem: BaseException, project_dir: Path) -> InvalidDeclaration:
    if isinstance(problem, ModuleNotFoundError) and problem.name == name:
        return InvalidDeclaration.of_field(
            "modules", f"there is no module {name!r} in {project_dir.name}/; fix the name in tidemill.toml"
        )
    where = _user_place(problem, project_dir)
    if isinstance(problem, ValidationError):
        return _record_failure(problem, where)
    last = traceback.format_exception_only(problem)[-1].strip()
    return InvalidDeclaration(f"{where or name}: {last}")


def _user_place(problem: BaseException, project_dir: Path) -> str:
    """``file:line`` of the innermost frame in the project, or of a syntax error."""
    if isinstance(problem, SyntaxError) and problem.filename:
        return f"{_relative(problem.filename, project_dir)}:{problem.lineno}"
    frames = [
        frame for frame in traceback.extract_tb(problem.__traceback__) if _inside(Path(frame.filename), project_dir)
    ]
    return f"{_relative(frames[-1].filename, project_dir)}:{frames[-1].lineno}" if frames else ""


def _relative(filename: str, project_dir: Path) -> str:
    path, root = Path(filename).resolve(), project_dir.resolve()
    return str(path.relative_to(root)) if path.is_relative_to(root) else filename


def _record_failure(problem: ValidationError, where: str) -> InvalidDeclaration:
    wrong = [
        FieldError(_field_name(problem.title, error["loc"]), InvalidDeclaration.code, _plain(error["msg"]))
        for error in problem.errors(include_url=False, include_context=False)
    ]
    first = f"{wrong[0].field}: {wrong[0].message}" if wrong[0].field != problem.title else wrong[0].message
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return InvalidDeclaration(f"{where}: {problem.title}: {first}{more}", fields=wrong)


def _field_name(record: str, location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or record


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ")
