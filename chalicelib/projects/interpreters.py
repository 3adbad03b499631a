"""Which Python runs a project, and where a newer one might be found."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ..kernel.errors import ToolMissing
from ..kernel.limits import INTERPRETER_PROBE_SECONDS
from .project_file import ProjectFile

Version = tuple[int, int]

_PROBE = "import sys, venv; print('%d.%d' % sys.version_info[:2])"


def project_python(project: ProjectFile, chosen: Path | None) -> Path:
    """The interpreter of the project: ``chosen``, else the file's ``python``, else ``.venv`` in the project.

    Raises ``ToolMissing`` that says how to make an environment. Symbolic links are kept: they tell the environment.
    """
    if chosen is not None:
        return _existing(chosen if chosen.is_absolute() else Path.cwd() / chosen, "--python", project)
    if project.python is not None:
        return _existing(project.folder / project.python, "python in tidemill.toml", project)
    return _existing(project.folder / ".venv" / "bin" / "python", "the project's environment", project)


def _existing(python: Path, origin: str, project: ProjectFile) -> Path:
    path = Path(os.path.normpath(python))
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise ToolMissing(
            f"there is no interpreter at {path} ({origin}); make the project's environment with "
            f"'{_making(project)}', or name another interpreter with --python"
        )
    return path


def _making(project: ProjectFile) -> str:
    """Commands that make the environment; tidemill comes alone, since a hashed file admits nothing beside it."""
    environment, requirements = project.folder / ".venv", project.folder / "requirements.txt"
    pip = f"{shlex.quote(str(environment))}/bin/pip install"
    listed = [f"{pip} -r {shlex.quote(str(requirements))}"] if requirements.is_file() else []
    return " && ".join([f"python3 -m venv {shlex.quote(str(environment))}", *listed, f"{pip} tidemill"])


def install_command(python: Path, *packages: str) -> str:
    """The command that installs ``packages`` into the environment of ``python``."""
    return f"{shlex.quote(str(python))} -m pip install {' '.join(shlex.quote(package) for package in packages)}"


def find_python(minimum: Version = (3, 12), maximum: Version = (3, 14)) -> Path | None:
    """An interpreter within the two versions, both included: PATH, pyenv's folder, then uv. ``None`` without one.

    Each candidate is run before it is believed: a pyenv shim on PATH may stand for a version that is not there.
    """
    for candidate in _candidates(minimum, maximum):
        version = _version_of(candidate)
        if version is not None and minimum <= version <= maximum:
            return candidate
    return None


def _candidates(minimum: Version, maximum: Version) -> Iterator[Path]:
    minors = range(minimum[1], maximum[1] + 1)
    for name in (*(f"python{minimum[0]}.{minor}" for minor in minors), "python3"):
        found = shutil.which(name)
        if found is not None:
            yield Path(found)
    yield from _pyenv_candidates(minimum, maximum)
    yield from _uv_candidates(minimum, maximum)


def _pyenv_candidates(minimum: Version, maximum: Version) -> Iterator[Path]:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for minor in range(minimum[1], maximum[1] + 1):
        yield from sorted(root.glob(f"{minimum[0]}.{minor}.*/bin/python"))


def _uv_candidates(minimum: Version, maximum: Version) -> Iterator[Path]:
    uv = shutil.which("uv")
    if uv is None:
        return
    for minor in range(minimum[1], maximum[1] + 1):
        answer = _output([uv, "python", "find", "--no-project", "--no-python-downloads", f"{minimum[0]}.{minor}"])
        if answer:
            yield Path(answer)


def _version_of(python: Path) -> Version | None:
    answer = _output([str(python), "-I", "-c", _PROBE])
    major, _, minor = (answer or "").partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _output(argv: list[str]) -> str | None:
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=INTERPRETER_PROBE_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
