"""The one supervised worker of the local stack: a process of its own, restarted when it ends, its end proved."""

from __future__ import annotations

import logging
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from ..bootstrap import Services
from ..settings import PREFIX, Settings
from ..workers.pace import Pace
from ..workers.supervisor import Supervisor
from .folder import LocalFolder
from .troubles import Say

_SUPERVISOR_LOG = logging.getLogger("tidemill.supervisor")
# The worker speaks to the API; it never gets the database (scheduler.md 8.1).
_NOT_FOR_WORKERS = frozenset({"database_url", "database_connections"})
_PROGRAM = "tidemill"


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """Which projects the worker builds, the secrets of their locations, and how many runs of each worker kind at once."""

    projects: Sequence[Path]
    secrets: Sequence[str]
    slots: int


class WorkerProcess:
    """The worker; what it prints goes to ``worker.log``, and what its supervisor has to tell is said."""

    def __init__(self, services: Services, folder: LocalFolder, plan: WorkerPlan, say: Say) -> None:
        self._services = services
        self._folder = folder
        self._plan = plan
        self._heard = _Heard(say)
        self._output: int | None = None
        self._supervisor: Supervisor | None = None

    def start(self) -> None:
        """Start it; a worker that ends is started again until ``stop``."""
        self._output = os.open(self._folder.worker_log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        _SUPERVISOR_LOG.addHandler(self._heard)
        self._supervisor = Supervisor(
            worker_command(self._plan, self._folder.path),
            state_dir=self._folder.path,
            prove_ended=self._services.runs.boot_ended,
            environment=worker_environment(self._services.settings, os.environ),
            tokens=[SecretStr(secret) for secret in self._plan.secrets],
            clock=self._services.clock,
            random=secrets.SystemRandom(),
            output=self._output,
            stop_seconds=Pace(stop_seconds=self._services.settings.stop_grace_seconds).drain_seconds,
        )
        self._supervisor.start()

    def stop(self) -> None:
        """Stop it in its own order; returns when nothing of it and of its runs is left."""
        if self._supervisor is not None:
            self._supervisor.stop()
            self._supervisor = None
        _SUPERVISOR_LOG.removeHandler(self._heard)
        if self._output is not None:
            os.close(self._output)
            self._output = None


class _Heard(logging.Handler):
    """Says the warnings of a logger."""

    def __init__(self, say: Say) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())


def worker_command(plan: WorkerPlan, state: Path) -> list[str]:
    """The command line of the worker."""
    projects = [word for project in plan.projects for word in ("--project", str(project))]
    return [
        sys.executable,
        "-m",
        _PROGRAM,
        "worker",
        "run",
        *projects,
        "--slots",
        str(plan.slots),
        # No Lambda runs here: the one worker takes their runs too.
        "--lambda-slots",
        str(plan.slots),
        "--state",
        str(state),
    ]


def worker_environment(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` with the settings of this stack in place of any others, and without the database."""
    kept = {name: value for name, value in environment.items() if not name.startswith(PREFIX)}
    values = settings.model_dump(exclude=set(_NOT_FOR_WORKERS), exclude_none=True)
    return kept | {PREFIX + name.upper(): str(value) for name, value in values.items()}
