"""Run a program of the project to its end: bounded, in its own process group, without our credentials."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..kernel.errors import CompileFailed
from ..kernel.limits import COMPILE_SECONDS, TOOL_OUTPUT_BYTES

# Credentials of the platform, and what would make the project's interpreter see our own packages.
_REFUSED_PREFIXES = ("AWS_", "TIDEMILL_", "ECS_", "LAMBDA_")
_REFUSED_NAMES = frozenset({"PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV", "_HANDLER", "DATABASE_URL"})
_TOKEN = re.compile(r"(^|_)TOKEN(S)?($|_)")
_TOOLS_OWN = ("DBT_", "SQLBUILD_", "SQB_")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class ProgramRunner(Protocol):
    """Runs one program to its end; whoever compiles may bring one that owns what it starts (``running_programs_by``)."""

    def __call__(
        self, argv: Sequence[str], *, cwd: Path, environment: Mapping[str, str], stdout: int, stderr: int
    ) -> int | None:
        """The exit code (negative: a signal), ``None`` after ``COMPILE_SECONDS``; nothing of it is left.

        ``stdout`` and ``stderr`` are descriptors. Raises ``OSError`` when it cannot be started.
        """


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended; the texts are the last 64 KB of each stream, without colours."""

    code: int
    stdout: str
    stderr: str


def scrubbed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without platform credentials and tokens; variables of the tools themselves stay."""
    return {name: value for name, value in environment.items() if not _refused(name)}


def _refused(name: str) -> bool:
    upper = name.upper()
    if upper.startswith(_REFUSED_PREFIXES) or upper in _REFUSED_NAMES:
        return True
    return bool(_TOKEN.search(upper)) and not upper.startswith(_TOOLS_OWN)


def run_to_end(argv: Sequence[str], *, cwd: Path, log_dir: Path, name: str, path_first: Path | None = None) -> Finished:
    """Run ``argv`` and wait for at most ``COMPILE_SECONDS``; then its whole group is killed.

    ``path_first`` is put in front of PATH. Raises ``CompileFailed`` when it takes too long or cannot be
    started.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    out, err = log_dir / f"{name}.out", log_dir / f"{name}.err"
    environment = _child_environment(path_first)
    with out.open("wb") as stdout, err.open("wb") as stderr:
        try:
            code = _RUNNER.get()(argv, cwd=cwd, environment=environment, stdout=stdout.fileno(), stderr=stderr.fileno())
        except OSError as problem:
            raise CompileFailed(f"{argv[0]} cannot be started: {problem.strerror}") from None
    if code is None:
        raise CompileFailed(f"{Path(argv[0]).name} did not finish within {COMPILE_SECONDS} s")
    return Finished(code, _tail(out), _tail(err))


@contextmanager
def running_programs_by(runner: ProgramRunner) -> Iterator[None]:
    """Within the block, the programs that this thread runs to their end are run by ``runner``."""
    token = _RUNNER.set(runner)
    try:
        yield
    finally:
        _RUNNER.reset(token)


def _child_environment(path_first: Path | None) -> dict[str, str]:
    environment = scrubbed_environment(os.environ)
    environment |= {
        "PYTHONUNBUFFERED": "1",
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        "DO_NOT_TRACK": "1",
    }
    if path_first is not None:
        environment["PATH"] = f"{path_first}{os.pathsep}{environment.get('PATH', os.defpath)}"
    return environment


def _in_a_group(
    argv: Sequence[str], *, cwd: Path, environment: Mapping[str, str], stdout: int, stderr: int
) -> int | None:
    child = subprocess.Popen(
        list(argv), cwd=cwd, env=dict(environment), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
        start_new_session=True,
    )  # fmt: skip
    try:
        return child.wait(timeout=COMPILE_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


_RUNNER: ContextVar[ProgramRunner] = ContextVar("program_runner", default=_in_a_group)


def _tail(path: Path) -> str:
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - TOOL_OUTPUT_BYTES))
        return _ESCAPES.sub("", stream.read().decode(errors="replace"))
