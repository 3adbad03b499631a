"""The whole stack, in the order in which its parts need each other; stopped in reverse order.

Each part's ``stop`` is registered before its ``start`` and does nothing where nothing was started, so that an error or
an interrupt half-way leaves nothing behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from ..bootstrap import Services, build_services
from ..client.api import ApiClient
from ..entrypoints.api.application import build_app
from ..kernel.clock import Clock, SystemClock
from ..kernel.errors import Unavailable, UsageError
from ..kernel.ids import IdSource
from ..projects.project_file import load_project_file
from ..settings import Settings, read_settings
from .api_server import ApiServer
from .folder import LocalFolder
from .infrastructure import start_aws, start_database
from .publisher import LocalProject, ProjectPublisher
from .pump import EventPump
from .recovery import recover, recover_shard
from .sources import event_sources, minute_tick
from .tokens import keep_location_token, keep_operator_token
from .troubles import Say
from .worker_process import WorkerPlan, WorkerProcess

# The pump, the threads of the API and the publisher share them.
_DATABASE_CONNECTIONS = 10


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What to run. ``port`` 0 takes a free one; an address replaces the embedded part of its kind."""

    data: Path
    projects: tuple[Path, ...] = ()
    port: int = 0
    database_url: str | None = None
    aws_endpoint: str | None = None
    slots: int = 2
    worker: bool = True


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the parts are."""

    server: str
    database_url: str
    aws_endpoint: str


@dataclass(slots=True)
class LocalStack:
    """One stack. ``start`` returns its addresses; ``stop`` may be called at any time and more than once.

    ``environment`` is where other settings come from (``TIDEMILL_LEASE_SECONDS`` and so on).
    """

    options: StackOptions
    say: Say
    clock: Clock = field(default_factory=SystemClock)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _parts: ExitStack = field(default_factory=ExitStack, init=False)
    _services: Services | None = field(default=None, init=False)

    @property
    def services(self) -> Services:
        """The services behind the API. Raises ``Unavailable`` while there are none."""
        if self._services is None:
            raise Unavailable("the local stack is starting or stopping; repeat in a few seconds")
        return self._services

    def start(self) -> Addresses:
        """Start everything. Raises the error of the part that cannot start, after stopping those before it."""
        try:
            return self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything, in reverse order."""
        self._parts.close()
        self._services = None

    def _start(self) -> Addresses:
        locations = locations_of(self.options.projects)
        folder = self._take_folder()
        # The port is taken first, so that one in use is told before anything slow; it answers when all is ready.
        api = self._api()
        settings = self._start_infrastructure(folder, api.bind())
        services = self._services = build_services(settings, clock=self.clock)
        self._parts.callback(services.close)
        tokens = _prepare(services, folder, locations.values())
        api.start()
        self._recover(services, folder)
        self._start_pump(services, folder)
        addresses = Addresses(settings.api_url, settings.database_url, str(settings.aws_endpoint))
        folder.describe({"pid": os.getpid(), **asdict(addresses), "console": None})
        self._start_publisher(services, folder, locations, tokens)
        self._start_worker(services, folder, tokens)
        return addresses

    def _take_folder(self) -> LocalFolder:
        folder = LocalFolder(self.options.data)
        self._parts.callback(folder.release)
        folder.acquire()
        return folder

    def _api(self) -> ApiServer:
        ids = IdSource(self.clock)
        app = build_app(lambda: self.services)
        api = ApiServer(app, new_request_id=lambda: ids.mint("req"), port=self.options.port)
        self._parts.callback(api.stop)
        return api

    def _start_infrastructure(self, folder: LocalFolder, server: str) -> Settings:
        url = start_database(self.options.database_url, folder, self._parts, self.say)
        own = {
            "database_url": url,
            "database_connections": _DATABASE_CONNECTIONS,
            "api_url": server,
            "container_slots": self.options.slots,
            "lambda_concurrency": self.options.slots,
        }
        settings = read_settings(self.environment).model_copy(update=own)
        return start_aws(self.options.aws_endpoint, folder, self._parts, settings, self.say)

    def _recover(self, services: Services, folder: LocalFolder) -> None:
        recover(
            services,
            folder.path,
            own_store=self.options.database_url is None,
            own_queues=self.options.aws_endpoint is None,
            say=self.say,
        )

    def _start_pump(self, services: Services, folder: LocalFolder) -> None:
        sources = event_sources(services, partial(recover_shard, services, folder.path, self.say))
        pump = EventPump(services.aws.queues, minute_tick(services), sources, clock=self.clock, say=self.say)
        self._parts.callback(pump.stop)
        self._parts.callback(services.recovery.close)  # it would keep the pump waiting for a whole lease
        pump.start()

    def _start_publisher(
        self, services: Services, folder: LocalFolder, locations: Mapping[Path, str], tokens: Mapping[str, str]
    ) -> None:
        projects = []
        for project, location in locations.items():
            client = ApiClient(services.settings.api_url, tokens[location], clock=self.clock)
            api = self._parts.enter_context(client)
            projects.append(LocalProject(project, location, api))
        publisher = ProjectPublisher(services, projects, folder.path / "compile", self.say)
        self._parts.callback(publisher.stop)
        publisher.start()

    def _start_worker(self, services: Services, folder: LocalFolder, tokens: Mapping[str, str]) -> None:
        if not self.options.worker or not self.options.projects:
            return
        plan = WorkerPlan(self.options.projects, tuple(tokens.values()), self.options.slots)
        worker = WorkerProcess(services, folder, plan, self.say)
        self._parts.callback(worker.stop)
        worker.start()


def locations_of(projects: Iterable[Path]) -> dict[Path, str]:
    """The location of each project folder. Raises ``InvalidDeclaration`` (project file) and ``UsageError``."""
    locations: dict[Path, str] = {}
    for project in projects:
        folder, location = project.resolve(), load_project_file(project).location
        other = next((known for known, taken in locations.items() if taken == location), None)
        if other is not None:
            raise UsageError(
                f"{other} and {folder} both say location = {location!r}; give one of them another location in tidemill.toml"
            )
        locations[folder] = location
    return locations


def _prepare(services: Services, folder: LocalFolder, locations: Iterable[str]) -> dict[str, str]:
    """Make the locations and the tokens; the secret of each location."""
    keep_operator_token(services.access, folder)
    tokens = {}
    for location in locations:
        services.locations.add(location)
        tokens[location] = keep_location_token(services.access, folder, location)
    return tokens
