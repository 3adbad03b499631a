from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from chalicelib.projects.interpreters import find_python, install_command

THIS = (sys.version_info[0], sys.version_info[1])


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH that holds nothing but what a test puts there."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_a_candidate_on_the_path_is_found(only: Path) -> None:
    name = only / "bin" / f"python{THIS[0]}.{THIS[1]}"
    script(name, f'exec {sys.executable} "$@"')
    assert find_python(THIS, THIS) == name


def test_a_candidate_that_does_not_run_is_passed_over_for_pyenv(only: Path) -> None:
    script(only / "bin" / f"python{THIS[0]}.{THIS[1]}", "echo 'pyenv: version is not installed' >&2; exit 127")
    real = only / "pyenv" / "versions" / f"{THIS[0]}.{THIS[1]}.9" / "bin" / "python"
    script(real, f'exec {sys.executable} "$@"')
    assert find_python(THIS, THIS) == real


def test_a_candidate_of_another_version_is_not_believed(only: Path) -> None:
    script(only / "bin" / "python3.13", f'exec {sys.executable} "$@"' if THIS != (3, 13) else "exit 1")
    assert find_python((3, 13), (3, 13)) is None


def test_uv_is_asked_last(only: Path) -> None:
    real = script(only / "elsewhere" / "python", f'exec {sys.executable} "$@"')
    script(only / "bin" / "uv", f'echo "{real}"')
    assert find_python(THIS, THIS) == real


def test_without_any_there_is_none(only: Path) -> None:
    assert find_python() is None


def test_the_install_command_can_be_pasted() -> None:
    path = Path("/my project/.venv/bin/python")
    assert install_command(path, "dbt-core<1.12") == f"'{os.fspath(path)}' -m pip install 'dbt-core<1.12'"
