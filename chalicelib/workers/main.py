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
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import SecretStr

from ..client.api import ApiClient
from ..cloud.ports import LeaseTable, SecretStore
from ..kernel.clock import SystemClock
from ..kernel.errors import InvalidInputs, TidemillError, UsageError
from ..kernel.ids import IdSource
from ..kernel.limits import WORKER_CALL_SECONDS
from ..leases.boots import boot_id_of, boots_of_machine, key_of, partition_of
from ..projects.project_file import load_project_file
from ..settings import Settings, read_settings
from .accounts import account_named, open_way
from .guardian import be_guarded
from .keeper import PR_SET_DUMPABLE, prctl
from .leftovers import ended_boots
from .loop import Worker, WorkerCloud
from .pace import Pace, check_stop_time
from .placement import started_ref
from .process import Account
from .protection import protection_here
from .records import settle
from .server import ServerApi
from .supervisor import TOKEN_FILE, prove
from .verification import Project

_LOGGER = logging.getLogger("tidemill.worker")
_DESCRIPTOR = "/dev/fd/"
_HIDDEN_VARIABLES = ("TIDEMILL_TOKEN", TOKEN_FILE)


class SecretCloud(WorkerCloud, Protocol):
    """The cloud of a worker process: what the loop needs, and the store of secrets."""

    @property
    def secrets(self) -> SecretStore:
        """The store of secrets."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of ``tidemill worker run``.

    ``server`` and ``token_file`` default to ``TIDEMILL_API_URL`` and ``TIDEMILL_TOKEN_FILE``; ``python`` overrides the
    interpreter that the projects' files name; ``lambda_slots`` are slots for runs of Lambda workers, which only a local
    stack has reason to give.
    """

    projects: Sequence[Path]
    state_dir: Path
    server: str | None = None
    token_file: Path | None = None
    python: Path | None = None
    slots: int = 1
    lambda_slots: int = 0


def run_worker(options: WorkerOptions, cloud: SecretCloud | None = None) -> int:
    """Run one boot until SIGTERM or SIGINT; the exit code. Raises ``UsageError`` for options that do not fit."""
    protect_process()
    supervised = be_guarded(os.environ)
    log_to_stderr()
    settings = read_settings()
    pace = Pace(stop_seconds=settings.stop_grace_seconds)
    if not supervised:  # a supervisor waits for as long as it takes
        check_stop_time(pace, settings.platform_stop_seconds, os.environ)
    cloud = _cloud(settings) if cloud is None else cloud
    tokens = tokens_of(options.token_file, settings.token_secret, os.environ, cloud.secrets.read)
    projects = named_projects(options.projects, options.python)
    account = _account(settings.child_user, options.state_dir)
    clock, random = SystemClock(), secrets.SystemRandom()
    stop = _stop_on_signals()
    with ApiClient(options.server or settings.api_url, None, clock=clock, total_seconds=WORKER_CALL_SECONDS) as client:
        api = ServerApi(client, tokens, clock)
        _prove_earlier_boots(options.state_dir, api, cloud.leases, stop)
        worker = Worker(
            settings,
            cloud,
            api,
            projects,
            slots=options.slots,
            state_dir=options.state_dir.resolve(),
            clock=clock,
            ids=IdSource(clock, random),
            random=random,
            pace=pace,
            resolve_secret=cloud.secrets.read,
            started_ref=started_ref(os.environ),
            lambda_slots=options.lambda_slots,
            account=account,
            protection=protection_here(os.environ, clock),
        )
        return worker.run_forever(stop)


def protect_process() -> None:
    """Before anything else: no process of the same user may read this one's memory, environment or descriptors."""
    prctl(PR_SET_DUMPABLE, 0)


def tokens_of(
    token_file: Path | None,
    secret: str,
    environment: MutableMapping[str, str],
    read_secret: Callable[[str], str],
) -> list[SecretStr]:
    """The location tokens, from the secret that ``TIDEMILL_TOKEN_SECRET`` names or, without one, from a file."""
    if not secret or token_file is not None or TOKEN_FILE in environment:
        return take_tokens(token_file, environment)
    try:
        text = read_secret(secret)
    except InvalidInputs as error:
        raise UsageError.of_field("TIDEMILL_TOKEN_SECRET", error.detail) from None
    return _tokens_in(text, "TIDEMILL_TOKEN_SECRET", secret)


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
    return _tokens_in(text, "--token-file", named)


def _tokens_in(text: str, field: str, named: str) -> list[SecretStr]:
    tokens = [SecretStr(line.strip()) for line in text.splitlines() if line.strip()]
    if not tokens:
        raise UsageError.of_field(field, f"{named} is empty; put one location token on each line")
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


def _prove_earlier_boots(state_dir: Path, api: ServerApi, leases: LeaseTable, stop: threading.Event) -> None:
    """A later boot on the same machine proves the end of earlier ones whose processes are gone (scheduler.md 7.3)."""
    items: dict[str, Mapping[str, Any]] = {}

    def read_items(machine_id: str) -> Iterable[Mapping[str, Any]]:
        try:
            items.update({boot_id_of(item): item for item in boots_of_machine(leases, machine_id)})
        except TidemillError as error:  # the files alone say less, and nothing wrong
            _LOGGER.warning("earlier boots are known by their files only: %s", error.detail)
        return items.values()

    for boot_id in ended_boots(state_dir, secrets.SystemRandom(), read_items):
        if prove(api.boot_ended, boot_id, secrets.SystemRandom(), stop):
            settle(state_dir, boot_id)
            _forget(leases, boot_id, items.get(boot_id))


def _forget(leases: LeaseTable, boot_id: str, item: Mapping[str, Any] | None) -> None:
    """Delete the lease of a boot that is proved ended, as it would have done itself; the table tidies what stays."""
    if item is None:
        return
    try:
        leases.delete(*key_of(boot_id, partition_of(boot_id)), owner_token=item["owner_token"])
    except TidemillError as error:
        _LOGGER.warning("the lease item of boot %s stays: %s", boot_id, error.detail)


def _account(child_user: str, state_dir: Path) -> Account | None:
    """Who builds run as, with a way through the state folder to what is theirs; ``None``: the worker's own user."""
    if not child_user:
        return None
    account = account_named(child_user)
    for name in ("runs", "compile"):
        open_way(state_dir.resolve(), state_dir.resolve() / name)
    return account


def _cloud(settings: Settings) -> SecretCloud:
    from ..cloud.aws import Aws

    return Aws(settings)


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def log_to_stderr() -> None:
    """Say what happens on standard error, never with the signature of an upload link."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
