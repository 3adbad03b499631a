"""Options that every command takes, and those that several share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

_SHARED = "Options of every command"


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """What stands after any command: where to, how long, and in which form to answer."""

    json: Annotated[
        bool,
        typer.Option("--json", help="Write one JSON document to stdout and nothing else.", rich_help_panel=_SHARED),
    ] = False
    json_output: Annotated[
        Path | None,
        typer.Option("--json-output", metavar="FILE", help="Write the JSON document to FILE.", rich_help_panel=_SHARED),
    ] = None
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="Address of the server.", rich_help_panel=_SHARED)
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="File that holds the token.", rich_help_panel=_SHARED),
    ] = None
    location: Annotated[
        str | None,
        typer.Option("--location", metavar="NAME", help="Location; default: the project's.", rich_help_panel=_SHARED),
    ] = None
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="NAME", help="Target; default: the project's.", rich_help_panel=_SHARED),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.1,
            help="Time for the command; default: 120 s.",
            rich_help_panel=_SHARED,
        ),
    ] = None


Limit = Annotated[int | None, typer.Option("--limit", min=1, max=200, help="Items on the page; default: 50.")]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Go on behind an earlier page (its next_cursor).")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Key of the job.")]
ProjectFolder = Annotated[
    Path | None,
    typer.Option("--project", metavar="DIR", help="Project folder; default: the nearest with tidemill.toml."),
]
Python = Annotated[
    Path | None,
    typer.Option("--python", metavar="PATH", help="The project's interpreter; default: its virtual environment."),
]
StoreAddress = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", envvar="TIDEMILL_DATABASE_URL", help="Work on this database, not over the API."
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end; exit 1 unless it succeeded.")]
DirectStore = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="Work on this database as its operator, not over the API.")
]
ClientId = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="Id of this change; give the printed one again to repeat it.")
]
