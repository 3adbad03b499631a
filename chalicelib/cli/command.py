"""What every command shares: its options, its session, and the way of its answer."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import typer

from ..kernel import limits
from ..kernel.clock import SystemClock
from ..kernel.errors import UsageError
from ..kernel.ids import IdSource, Prefix, check_client_id
from . import output
from .context import Connection, find_connection, find_place
from .options import CommonOptions

if TYPE_CHECKING:
    from ..client.api import ApiClient

UseCase = TypeVar("UseCase", bound=Callable[..., output.Outcome])


class Session:
    """One command's surroundings: where it runs, where it goes, and the clock and ids that it uses."""

    def __init__(self, options: CommonOptions) -> None:
        self.options = options
        self.folder = Path.cwd()
        self.clock = SystemClock()
        self.ids = IdSource(self.clock)
        self.say = output.say
        self._api: ApiClient | None = None

    def connection(self) -> Connection:
        """Server and token of this command."""
        return find_connection(self.options.server, self.options.token_file, environment=os.environ, folder=self.folder)

    @property
    def api(self) -> ApiClient:
        """The client of the server, made on first use."""
        if self._api is None:
            self._api = self.client_until(self.options.timeout)
        return self._api

    def client_until(self, seconds: float | None) -> ApiClient:
        """A client whose calls all end within ``seconds``; without it each call has its own limit."""
        from ..client.api import ApiClient
        from ..client.deadline import Deadline

        found = self.connection()
        until = Deadline(self.clock, seconds) if seconds else None
        total = seconds or limits.COMMAND_SECONDS
        return ApiClient(found.server, found.token, clock=self.clock, total_seconds=total, until=until)

    def place(self) -> tuple[str, str]:
        """Location and target, both known. Raises ``UsageError`` naming the option that is missing."""
        location, target = self.place_if_known()
        for name, value in (("--location", location), ("--target", target)):
            if value is None:
                raise UsageError.of_field(name, "give it, or run this in a project folder with a tidemill.toml")
        return str(location), str(target)

    def place_if_known(self) -> tuple[str | None, str | None]:
        """Location and target as far as options or the project name them."""
        return find_place(self.options.location, self.options.target, folder=self.folder)

    def announce_id(self, given: str | None, prefix: Prefix, what: str) -> str:
        """The id of a change, said on stderr before it is sent, so that a repeat is possible."""
        identity = check_client_id("--id", given) if given is not None else self.ids.mint(prefix)
        self.say(f"{what} {identity} (repeat with --id {identity})")
        return identity

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._api is not None:
            self._api.close()


def command(app: typer.Typer, name: str) -> Callable[[UseCase], UseCase]:
    """Register a function as a command; it gets a ``Session`` first, and every command's options are added."""

    def register(use_case: UseCase) -> UseCase:
        def run(**arguments: Any) -> int:
            common = CommonOptions(**{option.name: arguments.pop(option.name) for option in fields(CommonOptions)})
            return execute(common, lambda session: use_case(session, **arguments))

        run.__doc__ = use_case.__doc__
        signature = _signature(use_case)
        run.__dict__["__signature__"] = signature
        run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        app.command(name)(run)
        return use_case

    return register


def execute(common: CommonOptions, use_case: Callable[[Session], output.Outcome]) -> int:
    """Run one command and deliver its answer; returns the exit code."""
    output.check_file(common.json_output)
    session = Session(common)
    try:
        outcome = use_case(session)
    finally:
        session.close()
    for warning in outcome.warnings:
        output.say(f"warning: {warning}")
    output.deliver(outcome, as_json=common.json, file=common.json_output)
    return outcome.exit_code


def _signature(use_case: Callable[..., object]) -> inspect.Signature:
    """The parameters of ``use_case`` without its session, then the options of every command."""
    hints = get_type_hints(use_case, include_extras=True)
    own = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in list(inspect.signature(use_case).parameters.items())[1:]
    ]
    shared_hints = get_type_hints(CommonOptions, include_extras=True)
    shared = [
        inspect.Parameter(
            option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=shared_hints[option.name]
        )
        for option in fields(CommonOptions)
    ]
    return inspect.Signature([*own, *shared])


def noun(name: str, help_text: str) -> typer.Typer:
    """The group of commands of one noun."""
    return typer.Typer(name=name, help=help_text, rich_markup_mode=None, add_completion=False)
