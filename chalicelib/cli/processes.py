"""``tidemill dev`` and ``tidemill worker run``: processes that go on until they are stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .command import Session, command, noun
from .context import DATA_FOLDER
from .options import Python
from .output import Outcome

_worker = noun("worker", "The worker: takes runs from a queue and builds them.")


def add_to(app: typer.Typer) -> None:
    """Add ``dev`` and ``worker``."""
    command(app, "dev")(dev)
    app.add_typer(_worker)


def dev(
    session: Session,
    projects: Annotated[
        list[Path] | None, typer.Argument(metavar="[PROJECT]...", help="Project folders; default: this folder.")
    ] = None,
    *,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Where the stack keeps everything.")] = Path(
        DATA_FOLDER
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port of the API; default: a free one.")] = 0,
    database_url: Annotated[
        str | None, typer.Option("--database-url", metavar="URL", help="Use this Postgres, not the embedded one.")
    ] = None,
    aws_endpoint: Annotated[
        str | None, typer.Option("--aws-endpoint", metavar="URL", help="Use this AWS endpoint, not the stand-in.")
    ] = None,
    slots: Annotated[int, typer.Option("--slots", min=1, max=64, help="Runs of the worker at one time.")] = 2,
    worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Start a supervised worker.")] = True,
) -> Outcome:
    """Run everything on this machine until Ctrl-C: Postgres, AWS stand-in, API, ticks, a worker; publish on changes."""
    from ..local.dev import DevOptions, run_dev

    options = DevOptions(
        projects=tuple(projects or ()),
        data=data,
        port=port,
        database_url=database_url,
        aws_endpoint=aws_endpoint,
        slots=slots,
        worker=worker,
    )
    return Outcome({"stopped": True}, exit_code=run_dev(options, session.say))


@command(_worker, "run")
def run_worker_here(
    session: Session,
    projects: Annotated[
        list[Path] | None,
        typer.Option(
            "--project", metavar="DIR", help="Project that this worker builds; may be repeated; default: here."
        ),
    ] = None,
    *,
    state: Annotated[
        Path, typer.Option("--state", metavar="DIR", help="Where it keeps run folders and proofs of their end.")
    ] = Path(DATA_FOLDER),
    slots: Annotated[int, typer.Option("--slots", min=1, max=64, help="Runs at one time.")] = 1,
    lambda_slots: Annotated[
        int,
        typer.Option("--lambda-slots", min=0, max=64, help="Runs of Lambda workers at one time, where no Lambda runs."),
    ] = 0,
    python: Python = None,
) -> Outcome:
    """Take runs from the queue of the containers and build them until SIGTERM or Ctrl-C."""
    from ..workers.main import WorkerOptions, run_worker

    options = WorkerOptions(
        projects=projects or [session.folder],
        state_dir=state,
        server=session.options.server,
        token_file=session.options.token_file,
        python=python,
        slots=slots,
        lambda_slots=lambda_slots,
    )
    return Outcome({"stopped": True}, exit_code=run_worker(options))
