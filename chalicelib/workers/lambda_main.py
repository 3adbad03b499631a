"""What a Lambda's environment does once, before its first run: the same as ``main.py`` for a process."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from ..client.api import ApiClient
from ..client.deadline import Deadline
from ..kernel.clock import SystemClock
from ..kernel.errors import UsageError
from ..kernel.ids import IdSource
from ..kernel.limits import WORKER_CALL_SECONDS
from ..settings import Settings, read_settings
from .boot import Ground
from .invocation import LambdaWorker
from .main import SecretCloud, log_to_stderr, named_projects, protect_process, tokens_of
from .pace import Pace
from .server import ServerApi, WorkerApi
from .verification import Verifier

_TASK_ROOT = "LAMBDA_TASK_ROOT"


def worker_here() -> LambdaWorker:
    """The worker that the environment variables describe. Raises ``UsageError`` naming the one that is wrong."""
    from ..cloud.aws import Aws

    protect_process()
    log_to_stderr()
    settings = read_settings()
    return make_worker(settings, Aws(settings))


def make_worker(settings: Settings, cloud: SecretCloud) -> LambdaWorker:
    """The worker over a cloud; reads the tokens and finds the projects."""
    clock, random = SystemClock(), secrets.SystemRandom()
    state_dir = Path(settings.worker_state)
    tokens = tokens_of(None, settings.token_secret, os.environ, cloud.secrets.read)
    projects = named_projects(project_folders(settings), None)
    verifier = Verifier(projects, state_dir / "compile", clock, cloud.secrets.read)

    @contextmanager
    def connect(seconds: float) -> Iterator[WorkerApi]:
        until = Deadline(clock, seconds)
        with ApiClient(settings.api_url, None, clock=clock, total_seconds=WORKER_CALL_SECONDS, until=until) as client:
            yield ServerApi(client, tokens, clock)

    ground = Ground(settings, state_dir, verifier, clock, IdSource(clock, random), random, Pace())
    return LambdaWorker(ground, cloud, connect, _exit)


def project_folders(settings: Settings) -> list[Path]:
    """The folders that ``TIDEMILL_WORKER_PROJECTS`` names, by default the root of the function's code."""
    named = [Path(folder) for folder in settings.worker_projects.split(os.pathsep) if folder]
    if not named and _TASK_ROOT in os.environ:
        named = [Path(os.environ[_TASK_ROOT])]
    if not named:
        raise UsageError.of_field("TIDEMILL_WORKER_PROJECTS", "name the folders of the projects in the image")
    return named


def _exit() -> NoReturn:
    os._exit(1)
