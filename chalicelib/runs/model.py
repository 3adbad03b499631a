"""Records of runs: what is asked, what is stored, what is shown."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from ..kernel import limits
from ..kernel.records import CLIENT_ID_PATTERN, Instant, Record
from ..projects.bundle import JobDefinition
from .states import EndReason, RunState

ClientId = Annotated[str, Field(pattern=CLIENT_ID_PATTERN)]
Text = Annotated[str, Field(max_length=limits.TEXT_FIELD_CHARACTERS)]
Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=limits.TEXT_FIELD_CHARACTERS)]
WorkerKind = Literal["lambda", "container"]
StartedRef = Annotated[str, Field(min_length=1, max_length=limits.STARTED_REF_CHARACTERS)]
Origin = Literal["schedule", "manual", "rerun", "retry", "backfill"]
NodeStatus = Literal["succeeded", "failed", "warned", "skipped"]


# --- what people ask


class RunRequest(Record):
    """``POST …/jobs/{job}/runs``: the id is the client's, so that a repeat is safe."""

    run_id: ClientId
    inputs: dict[str, Any] = Field(default_factory=dict)


class CancelRequest(Record):
    """``POST /runs/{run}/cancel``."""

    cancel_id: ClientId
    reason: Text = ""


class RerunRequest(Record):
    """``POST /runs/{run}/rerun``: as it was, or with ``current`` by today's job, or with ``from_failed`` what is left over."""

    run_id: ClientId
    current: bool = False
    from_failed: bool = False

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.current and self.from_failed:
            raise ValueError("current and from_failed exclude each other: the nodes of another snapshot did not fail")
        return self


class ResolveRequest(Record):
    """``POST /runs/{run}/resolve``: an operator says how a run ended that nothing else can end."""

    resolve_id: ClientId
    outcome: Literal["succeeded", "failed", "cancelled"]
    reason: Reason


# --- what workers ask


class AcceptRequest(Record):
    """``POST /worker/runs/{run}/accept``, with the boot credential.

    ``started_ref`` is what the platform calls this start of the worker: the ARN of its ECS task, or the id of the Lambda's
    invocation; ``None`` where there is no such thing.
    """

    claim_id: str
    boot_id: ClientId
    boot_partition: Annotated[int, Field(ge=0, lt=limits.BOOT_PARTITIONS)]
    worker_kind: WorkerKind
    started_ref: StartedRef | None = None


class StartRequest(Record):
    """``POST /worker/runs/{run}/start``."""

    boot_id: ClientId


class NodeFacts(Record):
    """What is known of a node of a run. ``duration_seconds`` is the tool's own figure."""

    node: Annotated[str, Field(max_length=1_000)]
    started_at: Instant | None = None
    finished_at: Instant | None = None
    duration_seconds: float | None = None
    error_code: Annotated[str, Field(max_length=200)] | None = None
    message: Text | None = None


class NodeReport(NodeFacts):
    """One finished node."""

    status: NodeStatus


class Outcome(Record):
    """How a run ended, as its worker saw it (scheduler.md 8.4).

    ``settled`` is true when the child ended by its own exit or by SIGINT, so that the warehouse no longer works.
    """

    state: Literal["succeeded", "failed", "cancelled", "launch_failed"]
    end_reason: EndReason | None = None
    error_code: Annotated[str, Field(max_length=200)] | None = None
    message: Text | None = None
    warnings: Annotated[int, Field(ge=0)] = 0
    settled: bool = True
    summary: dict[str, Any] = Field(default_factory=dict)


class Report(Record):
    """``POST /worker/runs/{run}/reports``: verified, finished nodes, or the end. Keyed, so a repeat is safe."""

    report_key: ClientId
    kind: Literal["verified", "nodes", "terminal"]
    nodes: Annotated[list[NodeReport], Field(max_length=limits.NODES_PER_REPORT)] = Field(default_factory=list)
    outcome: Outcome | None = None


# --- what is answered


class RunInputs(Record):
    """All that a worker needs to verify and build one run; readable only with its claim.

    ``selection`` are the nodes to build, ``None`` for all of the job; ``drift_keys`` are those of what is built.
    """

    run_id: str
    claim_id: str
    location: str
    target: str
    job: str
    origin: str
    scheduled_for: Instant | None
    snapshot_id: str
    tool: str
    tool_version: str
    baseline_hash: str
    git_revision: str | None
    git_dirty: bool
    inputs: dict[str, Any]
    inputs_hash: str
    definition: JobDefinition
    selection: list[str] | None = None
    drift_keys: dict[str, str]
    environment: dict[str, str]
    settle_seconds: int


class Accepted(Record):
    """Answer of an accept: the worker token is scoped to this claim and shown once."""

    run_id: str
    claim_id: str
    location: str
    target: str
    job: str
    worker_token: str
    expires_at: Instant


class ClaimView(Record):
    """The newest claim of a run, with the ages that ``why`` shows."""

    claim_id: str
    worker_kind: WorkerKind
    boot_id: str | None
    sent_at: Instant | None
    accepted_at: Instant | None
    process_ended_at: Instant | None
    ended_at: Instant | None


class RunView(Record):
    """A run as lists and pages show it."""

    run_id: str
    location: str
    target: str
    job: str
    snapshot_id: str
    origin: Origin
    trigger: str | None
    scheduled_for: Instant | None
    requested_by: str | None
    rerun_of: str | None
    retry_of: str | None
    retry_number: int
    retried_by: str | None
    backfill_id: str | None
    inputs: dict[str, Any]
    selection: list[str] | None
    state: RunState
    not_before: Instant | None
    heartbeat_lost_at: Instant | None
    end_reason: EndReason | None
    reported_outcome: str | None
    warnings: int
    cancel_requested_at: Instant | None
    created_at: Instant
    claimed_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    summary: dict[str, Any] | None
    claim: ClaimView | None


class HeartbeatView(Record):
    """What recovery saw of a boot of the run: silence, or that it was heard again. ``counter`` is that of its last beat."""

    boot_id: str
    observed_at: Instant
    kind: Literal["lost", "recovered"]
    counter: int | None


class RunDetail(RunView):
    """One run, with what was seen of its workers."""

    heartbeats: list[HeartbeatView]


class NodeView(NodeFacts):
    """A node's row of a run; ``carried``: an earlier run built it, so this one leaves it as it is."""

    status: NodeStatus | Literal["carried"]


class EventView(Record):
    """One lifecycle fact of a run."""

    event_id: str
    seq: int
    kind: str
    occurred_at: Instant
    payload: dict[str, Any]


class Blocker(Record):
    """Why a queued run does not go on: the code, on what, since when, and what would clear it."""

    code: Literal[
        "job_concurrency", "no_worker_capacity", "pool_full", "pool_never_fits", "write_claim", "write_claim_settling",
        "held_for_older_run", "retry_backoff", "location_disabled",
    ]  # fmt: skip
    subject: str
    detail: dict[str, Any]
    since: Instant
    clears_when: str


class Progress(Record):
    """How long ago a claimed or running run was dispatched, accepted and started, in seconds; ``None``: not yet.

    ``silent_seconds`` is how long its boot has been known to miss beats. ``busy_boots`` counts the containers that hold an
    accepted claim now (``None`` for Lambda, which starts a boot per run).
    """

    dispatched_seconds: float | None
    accepted_seconds: float | None
    started_seconds: float | None
    silent_seconds: float | None
    busy_boots: int | None


class WhyView(Record):
    """``GET /runs/{id}/why``: a sentence, and the typed blockers of a waiting run or the progress of an active one."""

    run_id: str
    state: RunState
    explanation: str
    blockers: list[Blocker]
    progress: Progress | None
    claim: ClaimView | None
