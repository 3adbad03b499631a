"""Where the project's files came from, as git tells it; nothing where there is no git."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from ..kernel.limits import INTERPRETER_PROBE_SECONDS
from .bundle import GitRecord
from .processes import scrubbed_environment

_CHANGED_FILES_MAX = 50


def git_record(folder: Path, environment: dict[str, str]) -> GitRecord:
    """Revision, whether files below ``folder`` differ from it, and the authors of the changed files.

    The changed files are those that differ from the revision, or, in a clean folder, those of the newest commit that
    touched it.
    """
    program = shutil.which("git")
    if program is None:
        return GitRecord()
    git = _Git(program, folder, scrubbed_environment(environment))
    revision = git.ask("rev-parse", "--verify", "HEAD")
    if not revision:
        return GitRecord()
    changed = _changed(git.ask("status", "--porcelain", "-z", "--no-renames", "--", ".") or "")
    return GitRecord(revision=revision, dirty=bool(changed), authors=_authors(git, changed))


class _Git:
    def __init__(self, program: str, folder: Path, environment: dict[str, str]) -> None:
        self._program, self._folder = program, folder
        self._environment = {**environment, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}

    def ask(self, *arguments: str) -> str | None:
        """The answer without surrounding blanks, ``None`` when git refuses."""
        try:
            done = subprocess.run(
                [self._program, "-C", str(self._folder), *arguments],
                capture_output=True, check=False, timeout=INTERPRETER_PROBE_SECONDS, env=self._environment,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.decode(errors="replace").strip("\n") if done.returncode == 0 else None


def _changed(status: str) -> list[str]:
    return [entry[3:] for entry in status.split("\0") if entry]


def _authors(git: _Git, changed: list[str]) -> tuple[str, ...]:
    if not changed:
        newest = git.ask("log", "-n", "1", "--format=%an", "--", ".")
        return (newest,) if newest else ()
    # status paths are relative to the top of the work tree
    answers = (git.ask("log", "-n", "1", "--format=%an", "--", f":/{path}") for path in changed[:_CHANGED_FILES_MAX])
    return tuple(sorted({author for author in answers if author}))
