"""Jobs of the current snapshot, and asking for a run of one."""

from __future__ import annotations

from http import HTTPStatus

from ...catalog.model import JobSummary, JobView
from ...kernel.errors import IdReused, InvalidInputs, LocationDisabled, NeverFits
from ...kernel.records import Record
from ...runs.model import RunRequest, RunView
from .routing import Call, Nothing, Reply, Resource
from .scopes import in_path
from .shapes import Key, TargetPath

resource = Resource("jobs")


class JobPath(TargetPath):
    """A job."""

    job: Key


class RequestedRun(Record):
    """``reused`` is true when this very request was made before, whatever became of its run since."""

    run: RunView
    reused: bool


class Jobs(Record):
    """All jobs of a target's current snapshot, by name; always one page."""

    items: list[JobSummary]
    next_cursor: None = None


@resource.operation("GET", "/locations/{location}/targets/{target}/jobs", permission="triggers.read", scope=in_path)
def list_jobs(call: Call[TargetPath, Nothing, None]) -> Jobs:
    """List the jobs of a target's current snapshot."""
    return Jobs(items=call.services.catalog.jobs(call.path.location, call.path.target))


@resource.operation(
    "GET", "/locations/{location}/targets/{target}/jobs/{job}", permission="triggers.read", scope=in_path
)
def show_job(call: Call[JobPath, Nothing, None]) -> JobView:
    """Show a job with its whole definition."""
    return call.services.catalog.job(call.path.location, call.path.target, call.path.job)


@resource.operation(
    "POST",
    "/locations/{location}/targets/{target}/jobs/{job}/runs",
    permission="runs.request",
    scope=in_path,
    statuses=[HTTPStatus.CREATED, HTTPStatus.OK],
    errors=[IdReused, InvalidInputs, NeverFits, LocationDisabled],
)
def request_run(call: Call[JobPath, Nothing, RunRequest]) -> Reply[RequestedRun]:
    """Queue a run of a job's current definition. 200: the same request was made before, and this is its run."""
    path = call.path
    run, reused = call.services.runs.request(path.location, path.target, path.job, call.body, call.principal.name)
    return Reply(HTTPStatus.OK if reused else HTTPStatus.CREATED, RequestedRun(run=run, reused=reused))
