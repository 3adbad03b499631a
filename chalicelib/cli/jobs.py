"""``tidemill jobs`` and ``tidemill run``: the current jobs, and a run by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from ..client.address import path_of
from ..kernel.errors import InvalidInputs
from .command import Session, command, noun
from .inputs import Inputs, named_values
from .operating import Operating, Place, operating
from .options import ClientId, DirectStore, JobArgument, Wait
from .output import Facts, Outcome, Table, cell
from .views import job_rows
from .waiting import requested

_JSON_TYPES: Mapping[str, tuple[type, ...]] = {"integer": (int,), "number": (int, float), "boolean": (bool,)}
_EXAMPLE = {"integer": "3", "number": "2.5", "boolean": "true or false"}

_app = noun("jobs", "Jobs of the current snapshot.")


def add_to(app: typer.Typer) -> None:
    """Add ``jobs`` and ``run``."""
    app.add_typer(_app)
    command(app, "run")(run)


@command(_app, "list")
def list_jobs(session: Session) -> Outcome:
    """List the current jobs of a location and target."""
    items = list(session.api.pages(_jobs_path(session)))
    return Outcome({"items": items, "next_cursor": None}, [Table(*job_rows(items), empty="no jobs are published here")])


@command(_app, "show")
def show_job(session: Session, job: JobArgument) -> Outcome:
    """Show one job: what it builds, its limits, inputs and triggers."""
    found = session.api.call("GET", _jobs_path(session) + path_of(job)).body
    return Outcome(found, [Facts([(name, cell(value)) for name, value in _flat(found)])])


def run(
    session: Session,
    job: JobArgument,
    inputs: Inputs = None,
    *,
    wait: Wait = False,
    identity: ClientId = None,
    store: DirectStore = None,
) -> Outcome:
    """Run a job now. The run id is printed before it is sent, so that a lost answer can be repeated with --id."""
    with operating(session, store) as operator:
        values = _values(operator, session.place(), job, inputs or [])
        run_id = session.announce_id(identity, "run", "run id")
        body = operator.request(session.place(), job, {"run_id": run_id, "inputs": values})
        return requested(session, body, wait=wait, read=operator.run if store else None)


def _jobs_path(session: Session) -> str:
    location, target = session.place()
    return path_of("locations", location, "targets", target, "jobs")


def _flat(job: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The definition's fields after the job's own, when it is nested."""
    definition = job.get("definition")
    inner = list(definition.items()) if isinstance(definition, dict) else []
    return [(name, value) for name, value in job.items() if name != "definition"] + inner


# --- inputs


def _values(operator: Operating, place: Place, job: str, inputs: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` as the types that the job declares; an unknown name is left to the server to refuse."""
    if not inputs:
        return {}
    found = operator.job(place, job)
    declared = dict(_flat(found)).get("inputs") or {}
    values: dict[str, Any] = {}
    for name, value in named_values(inputs).items():
        values[name] = _typed(name, value, str((declared.get(name) or {}).get("type", "text")))
    return values


def _typed(name: str, value: str, kind: str) -> Any:
    if kind not in _JSON_TYPES:
        return value
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None
    if not isinstance(parsed, _JSON_TYPES[kind]) or (isinstance(parsed, bool) and kind != "boolean"):
        raise InvalidInputs.of_field(
            f"--input {name}", f"must be of type {kind}, such as {_EXAMPLE[kind]}, not {value!r}"
        )
    return parsed
