"""What workers call: accept a claim with the boot credential, then everything else with that claim's own token."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from ...access import Principal
from ...kernel.errors import ClaimEnded, ClaimTaken, Forbidden, IdReused, ReportKeyReused, RunCancelled
from ...kernel.records import Record
from ...leases.heartbeats import Heartbeat, HeartbeatRequest, take_heartbeat
from ...runs.model import Accepted, AcceptRequest, Report, RunInputs, RunView, StartRequest
from ...runs.service import BootEnded
from .routing import Call, Nothing, Resource
from .scopes import of_claim, of_run, own
from .shapes import ClientId, RunPath

resource = Resource("worker")


class BootPath(Record):
    """A boot of a worker."""

    boot_id: ClientId


class LogUploads(Record):
    """Names of parts of a log that a worker wants to upload."""

    names: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=100)]


class LogUploadLinks(Record):
    """A presigned PUT for each name."""

    urls: dict[str, str]


def _claim_of(principal: Principal) -> str:
    claim_id = principal.scope.claim_id
    if claim_id is None:
        raise Forbidden("this needs the token of a claim")
    return claim_id


@resource.operation(
    "POST",
    "/worker/runs/{run_id}/accept",
    permission="worker.accept",
    scope=of_run,
    errors=[ClaimTaken, ClaimEnded, RunCancelled],
)
def accept_run(call: Call[RunPath, Nothing, AcceptRequest]) -> Accepted:
    """Bind a claim to this boot. The answer's token is shown once; accepting again ends it and gives another."""
    return call.services.runs.accept(call.path.run_id, call.body)


@resource.operation(
    "GET", "/worker/runs/{run_id}/inputs", permission="worker.run", scope=of_claim, errors=[ClaimEnded, RunCancelled]
)
def inputs_of_run(call: Call[RunPath, Nothing, None]) -> RunInputs:
    """Give all that a worker needs to verify and build its run."""
    return call.services.runs.inputs(call.path.run_id, _claim_of(call.principal))


@resource.operation(
    "POST",
    "/worker/runs/{run_id}/start",
    permission="worker.run",
    scope=of_claim,
    errors=[ClaimTaken, ClaimEnded, RunCancelled],
)
def start_run(call: Call[RunPath, Nothing, StartRequest]) -> RunView:
    """Say that the child process starts now; refused after a cancel."""
    return call.services.runs.start(call.path.run_id, _claim_of(call.principal), call.body)


@resource.operation(
    "POST",
    "/worker/runs/{run_id}/reports",
    permission="worker.run",
    scope=of_claim,
    errors=[ClaimEnded, ReportKeyReused, RunCancelled],
)
def report_run(call: Call[RunPath, Nothing, Report]) -> dict[str, JsonValue]:
    """Take a report: verified, finished nodes, or the end. The same key with the same content gives the same answer."""
    return call.services.runs.report(call.path.run_id, _claim_of(call.principal), call.body)


@resource.operation("POST", "/worker/runs/{run_id}/log-uploads", permission="worker.run", scope=of_claim)
def upload_logs_of_run(call: Call[RunPath, Nothing, LogUploads]) -> LogUploadLinks:
    """Give presigned addresses for parts of the run's log."""
    return LogUploadLinks(urls=call.services.runs.log_uploads(call.path.run_id, call.body.names))


@resource.operation("POST", "/worker/heartbeat", permission="worker.accept", scope=own, errors=[IdReused])
def beat_boot(call: Call[Nothing, Nothing, HeartbeatRequest]) -> Heartbeat:
    """Move the counter of a boot's lease, for workers that do not reach the lease table themselves.

    The boot's own secret in the body says whose lease it is; the answer holds the cancels and revocations for its runs.
    The first beat of a boot brings its facts, which open the lease.
    """
    location = call.principal.scope.location
    locations = [] if location is None else [location]
    return take_heartbeat(call.services.aws.leases, call.body, locations, call.services.clock.now())


@resource.operation("POST", "/worker/boots/{boot_id}/ended", permission="worker.ended", scope=own)
def end_boot(call: Call[BootPath, Nothing, None]) -> BootEnded:
    """Settle the runs of a boot whose process is proved to have ended, as its supervisor or successor has seen."""
    return call.services.runs.boot_ended(call.path.boot_id, call.principal.scope.location)
