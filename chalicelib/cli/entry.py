"""The whole command line: its nouns, and what becomes of an error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer

from ..kernel.errors import EXIT_INTERRUPTED, TidemillError, UsageError
from . import (
    admin,
    alerts,
    backfills,
    doctor,
    jobs,
    output,
    pools,
    problems,
    processes,
    project,
    runs,
    simulate,
    triggers,
)
from .command import noun


@cache
def application() -> typer.Typer:
    """Every command of ``tidemill``."""
    app = noun("tidemill", "Runs SQL builds on time in your own AWS account, with no server to look after.")
    app.callback(invoke_without_command=True)(_root)
    for add in (
        project.add_to,
        jobs.add_to,
        runs.add_to,
        triggers.add_to,
        backfills.add_to,
        pools.add_to,
        alerts.add_to,
        simulate.add_to,
        processes.add_to,
        admin.add_to,
        doctor.add_to,
    ):
        add(app)
    return app


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; every error of ours becomes one message."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    try:
        code = _command().main(words, prog_name="tidemill", standalone_mode=False)
    except TidemillError as error:
        return problems.show(error, as_json=as_json)
    except typer.TyperException as error:
        return problems.show(_usage(error), as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    if code == EXIT_INTERRUPTED:
        output.say("interrupted")
    return int(code or 0)


@cache
def _command() -> Any:
    return typer.main.get_command(application())


def _usage(error: typer.TyperException) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tidemill"
    return UsageError(f"{error.format_message()} (see `{path} --help`)")


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the release and end.")] = False,
) -> None:
    if version:
        from .. import __version__

        typer.echo(f"tidemill {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit
