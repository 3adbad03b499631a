"""Environments of the example projects: hashed requirements, and the bare wheel with ``--no-deps``.

Plain functions, made once per test session and shared by its xdist workers. A test module calls
``environment_for("coffee_dbt", tmp_path_factory)`` in a fixture of its own and gets the environment's interpreter, or
``None`` when no Python of the wanted version is on this machine.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chalicelib.projects.interpreters import find_python

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

# The newest Python that is wanted is not the newest that is tried: dbt is known to work on 3.11.
VERSIONS = {"coffee_sqlbuild": ((3, 12), (3, 14)), "coffee_dbt": ((3, 11), (3, 13))}
_WHEEL_SOURCES = ("chalicelib", "pyproject.toml", "setup.py", "README.md", "LICENSE")
_UNWANTED = shutil.ignore_patterns(
    ".venv", "target", "logs", "*.duckdb", "*.duckdb.wal", "__pycache__", ".tidemill", "daily_sales.csv", ".user.yml"
)


def environment_for(example: str, tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The interpreter of the example's environment, ``None`` without a fitting Python."""
    base = find_python(*VERSIONS[example])
    if base is None:
        return None
    shared = _shared_folder(tmp_path_factory)
    folder = _once(shared / f"environment-{example}", lambda made: _make(base, example, made, _wheel(shared)))
    return folder / "bin" / "python"


def copy_example(example: str, folder: Path) -> Path:
    """A copy of the example without what was built in it."""
    return Path(shutil.copytree(EXAMPLES / example, folder, ignore=_UNWANTED))


def rows_of(python: Path, database: Path) -> dict[str, int]:
    """Row counts by ``schema.table``, read by the environment's own DuckDB: the file format follows the release."""
    code = (
        "import duckdb, json, sys\n"
        "c = duckdb.connect(sys.argv[1], read_only=True)\n"
        "tables = c.execute('select table_schema, table_name from information_schema.tables').fetchall()\n"
        'count = lambda s, t: c.execute(f\'select count(*) from "{s}"."{t}"\').fetchone()[0]\n'
        "print(json.dumps({f'{s}.{t}': count(s, t) for s, t in tables}))\n"
    )
    done = subprocess.run([str(python), "-c", code, str(database)], check=True, capture_output=True, text=True)
    import json

    counted: dict[str, int] = json.loads(done.stdout)
    return counted


def _shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "project-environments"
    shared.mkdir(exist_ok=True)
    return shared


def _once(folder: Path, make: Callable[[Path], None]) -> Path:
    """``folder``, filled by the first process that asks while the others wait."""
    done = folder.with_name(f"{folder.name}.done")
    with _lock(folder.with_name(f"{folder.name}.lock")):
        if not done.exists():
            make(folder)
            done.touch()
    return folder


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _wheel(shared: Path) -> Path:
    return next(_once(shared / "wheel", _build_wheel).glob("*.whl"))


def _build_wheel(folder: Path) -> None:
    """Built from a copy: setuptools writes beside what it packs."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in _WHEEL_SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=_UNWANTED)
        else:
            shutil.copy(ROOT / name, source / name)
    _uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(folder), str(source))


def _make(base: Path, example: str, folder: Path, wheel: Path) -> None:
    _uv("venv", "--python", str(base), str(folder))
    python = str(folder / "bin" / "python")
    requirements = str(EXAMPLES / example / "requirements.txt")
    _uv("pip", "install", "--python", python, "--require-hashes", "-r", requirements)
    _uv("pip", "install", "--python", python, "--no-deps", str(wheel))


def _uv(*arguments: str) -> None:
    program = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    assert program is not None, "uv is a development dependency"
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(
        [program, "--quiet", *arguments], check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, f"uv {arguments[0]} failed: {done.stderr}"
