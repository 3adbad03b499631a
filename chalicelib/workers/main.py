"""``tidemill worker run``: what a worker process does before its loop starts.

The token comes from a file, never from an argument or a variable; ``/dev/fd/N`` is a pipe of the supervisor.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from ..client.api import ApiClient
from ..kernel.clock import SystemClock
from ..kernel.errors import UsageError
from ..kernel.ids import IdSource
from ..kernel.limits import STOP_GRACE_SECONDS, WORKER_CALL_SECONDS
from ..projects.project_file import load_project_file
from ..settings import Settings, read_settings
from .keeper import PR_SET_DUMPABLE, prctl
from .leftovers import ended_boots
from .loop import Pace, Worker, WorkerCloud
from .records import settle
from .server import ServerApi
from .supervisor import TOKEN_FILE, prove
from .verification import Project

_DESCRIPTOR = "/dev/fd/"
_HIDDEN_VARIABLES = ("TIDEMILL_TOKEN", TOKEN_FILE)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of ``tidemill worker run``.

    ``server`` and ``token_file`` default to ``TIDEMILL_API_URL`` and ``TIDEMILL_TOKEN_FILE``; ``python`` overrides the
    interpreter that the projects' files name; ``stop_seconds`` is how long running builds may go on after SIGTERM.
    """

    projects: Sequence[Path]
    state_dir: Path
    server: str | None = None
    token_file: Path | None = None
    python: Path | None = None
    slots: int = 1
    stop_seconds: float = STOP_GRACE_SECONDS


def run_worker(options: WorkerOptions, cloud: WorkerCloud | None = None) -> int:
    """Run one boot until SIGTERM or SIGINT; the exit code. Raises ``UsageError`` for options that do not fit."""
    protect_process()
    _log_to_stderr()
    tokens = take_tokens(options.token_file, os.environ)
    settings = read_settings()
    projects = named_projects(options.projects, options.python)
    clock, random = SystemClock(), secrets.SystemRandom()
    stop = _stop_on_signals()
    with ApiClient(options.server or settings.api_url, None, clock=clock, total_seconds=WORKER_CALL_SECONDS) as client:
        api = ServerApi(client, tokens, clock)
        _prove_earlier_boots(options.state_dir, api, stop)
        worker = Worker(
            settings,
            cloud or _cloud(settings),
            api,
            projects,
            slots=options.slots,
            state_dir=options.state_dir.resolve(),
            clock=clock,
            ids=IdSource(clock, random),
            random=random,
            pace=Pace(stop_seconds=options.stop_seconds),
        )
        return worker.run_forever(stop)


def protect_process() -> None:
    """Before anything else: no process of the same user may read this one's memory, environment or descriptors."""
    prctl(PR_SET_DUMPABLE, 0)


def take_tokens(token_file: Path | None, environment: MutableMapping[str, str]) -> list[SecretStr]:
    """Read the location tokens, one a line, and remove every trace of them from the environment."""
    named = str(token_file) if token_file is not None else environment.get(TOKEN_FILE)
    for name in _HIDDEN_VARIABLES:
        environment.pop(name, None)
    if named is None:
        raise UsageError.of_field("--token-file", f"name the file with the location token, or set {TOKEN_FILE}")
    try:
        text = _read(named)
    except (OSError, ValueError) as error:
        raise UsageError.of_field("--token-file", f"{named} cannot be read: {error}") from None
    tokens = [SecretStr(line.strip()) for line in text.splitlines() if line.strip()]
    if not tokens:
        raise UsageError.of_field("--token-file", f"{named} is empty; put one location token on each line")
    return tokens


def named_projects(folders: Sequence[Path], python: Path | None) -> dict[str, Project]:
    """The projects by the location that each file names; two of one location are refused."""
    projects: dict[str, Project] = {}
    for folder in folders:
        location = load_project_file(folder).location
        if location in projects:
            raise UsageError.of_field(
                "--project", f"{folder} and {projects[location].folder} name one location, {location}; give one of them"
            )
        projects[location] = Project(folder.resolve(), python)
    if not projects:
        raise UsageError.of_field("--project", "name at least one project folder")
    return projects


def _read(named: str) -> str:
    if named.startswith(_DESCRIPTOR):
        # A process that is not dumpable may not open its own /proc/self/fd, so take the descriptor itself.
        with os.fdopen(int(named.removeprefix(_DESCRIPTOR))) as stream:
            return stream.read()
    return Path(named).read_text()


def _prove_earlier_boots(state_dir: Path, api: ServerApi, stop: threading.Event) -> None:
    """A later boot on the same machine proves the end of earlier ones whose processes are gone (scheduler.md 7.3)."""
    for boot_id in ended_boots(state_dir, secrets.SystemRandom()):
        if prove(api.boot_ended, boot_id, secrets.SystemRandom(), stop):
            settle(state_dir, boot_id)


def _cloud(settings: Settings) -> WorkerCloud:
    from ..cloud.aws import Aws

    return Aws(settings)


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _log_to_stderr() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it would show the signatures of upload links
