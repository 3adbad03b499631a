from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from chalicelib.projects.git import git_record

QUIET = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def git(folder: Path, *arguments: str, author: str = "Ada") -> None:
    names = ["-c", f"user.name={author}", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(
        ["git", "-C", str(folder), *names, *arguments], check=True, capture_output=True, env={**os.environ, **QUIET}
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "repo" / "shop"
    folder.mkdir(parents=True)
    git(folder.parent, "init")
    (folder / "jobs.py").write_text("a = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    return folder


def test_a_clean_folder_names_the_author_of_its_newest_commit(project: Path) -> None:
    (project.parent / "elsewhere").write_text("x")
    git(project.parent, "add", ".")
    git(project.parent, "commit", "-m", "second", author="Bob")
    (project.parent / "elsewhere").write_text("changed outside the project")
    record = git_record(project, {**os.environ, **QUIET})
    assert (len(record.revision or ""), record.dirty, record.authors) == (40, False, ("Ada",))


def test_a_changed_folder_is_dirty_and_names_the_authors_of_the_changed_files(project: Path) -> None:
    (project / "more.py").write_text("b = 1\n")
    git(project, "add", ".")
    git(project, "commit", "-m", "second", author="Bob")
    (project / "jobs.py").write_text("a = 2\n")
    (project / "new.py").write_text("c = 1\n")
    record = git_record(project, {**os.environ, **QUIET})
    assert (record.dirty, record.authors) == (True, ("Ada",))


def test_a_folder_outside_git_has_no_record(tmp_path: Path) -> None:
    record = git_record(tmp_path, {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    assert (record.revision, record.dirty, record.authors) == (None, False, ())
