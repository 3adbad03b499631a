"""Every setting, read once, with its environment variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .kernel import limits
from .kernel.errors import FieldError, UsageError

PREFIX = "TIDEMILL_"
# The setting that bounds each kind of worker.
WORKER_SETTING: Mapping[str, str] = {
    "lambda": "TIDEMILL_LAMBDA_CONCURRENCY",
    "container": "TIDEMILL_CONTAINER_SLOTS",
}
Kept = Literal["ticks", "heartbeats", "alerts", "tokens", "backfills", "runs", "snapshots"]


class Settings(BaseModel):
    """The settings of one installation. Each field is read from ``TIDEMILL_<FIELD>``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: str = Field(default="local", pattern=r"^[a-z0-9-]{1,20}$")
    database_url: str = ""
    aws_endpoint: str | None = None
    aws_region: str = "eu-central-1"
    api_url: str = "http://127.0.0.1:8000"
    lambda_concurrency: int = Field(default=10, ge=0, le=1_000)
    container_slots: int = Field(default=4, ge=0, le=10_000)
    lease_seconds: int = Field(default=limits.LEASE_SECONDS, ge=3, le=limits.LEASE_LONGEST_SECONDS)
    beat_seconds: int = Field(default=limits.BEAT_SECONDS, ge=1)
    database_connections: int = Field(default=1, ge=1, le=100)
    # Retention (scheduler.md 16), in days
    keep_ticks_days: int = Field(default=90, ge=1, le=limits.KEPT_DAYS_MAX)
    keep_heartbeats_days: int = Field(default=2, ge=1, le=limits.KEPT_DAYS_MAX)
    keep_alerts_days: int = Field(default=30, ge=1, le=limits.KEPT_DAYS_MAX)
    keep_tokens_days: int = Field(default=7, ge=1, le=limits.KEPT_DAYS_MAX)
    keep_backfills_days: int = Field(default=180, ge=1, le=limits.KEPT_DAYS_MAX)
    keep_runs_days: int = Field(default=180, ge=1, le=limits.KEPT_DAYS_MAX)
    keep_snapshots_days: int = Field(default=90, ge=1, le=limits.KEPT_DAYS_MAX)
    # A worker: seconds that runs may go on after SIGTERM; what its platform gives from there to SIGKILL (0: unknown);
    # who builds run as; where a Lambda finds its projects (folders, with ``:`` between) and its disk; the secret that holds
    # its location tokens.
    stop_grace_seconds: float = Field(
        default=limits.STOP_GRACE_SECONDS, ge=0, le=limits.TIMEOUT_MAX_SECONDS["container"]
    )
    platform_stop_seconds: int = Field(default=0, ge=0)
    child_user: str = ""
    worker_projects: str = ""
    worker_state: str = "/tmp/tidemill"  # noqa: S108 - the only disk of a Lambda
    token_secret: str = ""

    def name_of(self, resource: str) -> str:
        """The AWS name of a queue, table or bucket: ``tidemill-<stage>-<resource>``."""
        return f"tidemill-{self.stage}-{resource}"

    def keeping(self) -> dict[Kept, int]:
        """How many days retention keeps what it knows (scheduler.md 16)."""
        return {
            "ticks": self.keep_ticks_days,
            "heartbeats": self.keep_heartbeats_days,
            "alerts": self.keep_alerts_days,
            "tokens": self.keep_tokens_days,
            "backfills": self.keep_backfills_days,
            "runs": self.keep_runs_days,
            "snapshots": self.keep_snapshots_days,
        }

    def pool_limits(self) -> dict[str, int]:
        """Limits of the implicit pools of the worker kinds (scheduler.md 7.2)."""
        return {"worker:lambda": self.lambda_concurrency, "worker:container": self.container_slots}


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings; one that contradicts another is refused here, naming its variable."""
    source = os.environ if environment is None else environment
    if PREFIX + "AWS_REGION" not in source and "AWS_REGION" in source:
        source = {**source, PREFIX + "AWS_REGION": source["AWS_REGION"]}  # Lambda says where it runs
    values = {name: source[PREFIX + name.upper()] for name in Settings.model_fields if PREFIX + name.upper() in source}
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        fields = [FieldError(PREFIX + str(e["loc"][0]).upper(), "usage", e["msg"]) for e in error.errors()]
        raise UsageError("; ".join(f"{f.field}: {f.message}" for f in fields), fields=fields) from None
    check_beats(settings.lease_seconds, settings.beat_seconds)
    return settings


def check_beats(lease_seconds: int, beat_seconds: int) -> None:
    """Refuse fewer than three beats per lease: one slow beat would condemn a healthy worker."""
    if lease_seconds < 3 * beat_seconds:
        raise UsageError.of_field(
            "TIDEMILL_BEAT_SECONDS",
            f"three beats must fit in a lease of {lease_seconds} s; use {lease_seconds // 3} s or less",
        )


WorkerKind = Literal["lambda", "container"]
