"""What starts a job: schedules and sensors. Source, run, platform and user sensors are declared here and stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from .base import Flag, Key, Many, Positive, Record, Text, Texts

RunStatus = Literal["succeeded", "failed", "cancelled", "launch_failed"]
PlatformCondition = Literal[
    "launch_failed",
    "run_waiting",
    "run_lost",
    "run_overdue",
    "schedule_uncomputable",
    "sensor_failing",
    "sensor_lagging",
    "location_unseen",
    "location_work_expired",
    "scheduler_late",
    "clock_skew",
    "queue_dead_letter",
]

REQUESTS_PER_EVALUATION = 100


class Schedule(Record):
    """A cron expression in an IANA zone; the zone has no default.

    ``on_resume`` says what enabling again does: ``"none"`` starts afresh, ``"run_latest"`` runs once for the latest
    occurrence that was missed while disabled.
    """

    cron: Text
    timezone: Text
    dst: Literal["cron"] = "cron"
    on_resume: Literal["none", "run_latest"] = "none"
    name: Key | None = None
    enabled: Flag = True


class SourceSensor(Record):
    """Runs when one of the ``sources`` shows a new version. ``interval`` is the safety interval in seconds."""

    sources: Annotated[Texts, Field(min_length=1)]
    fire_on_first: Flag = False
    interval: Positive = 600
    name: Key | None = None
    enabled: Flag = True


class RunSensor(Record):
    """Runs when a run of one of the ``jobs`` ends with one of the ``statuses``."""

    jobs: Annotated[Many[Key], Field(min_length=1)]
    statuses: Annotated[Many[RunStatus], Field(min_length=1)] = ("succeeded",)
    name: Key | None = None
    enabled: Flag = True


class PlatformSensor(Record):
    """Runs once per alert of one of the ``conditions``."""

    conditions: Annotated[Many[PlatformCondition], Field(min_length=1)]
    name: Key | None = None
    enabled: Flag = True


class SensorResult(Record):
    """What a user sensor answers: run requests as run key -> inputs, the new cursor, or why there is nothing."""

    requests: Annotated[Mapping[str, Mapping[str, JsonValue]], Field(max_length=REQUESTS_PER_EVALUATION)] = Field(
        default_factory=dict
    )
    cursor: JsonValue = None
    skip_reason: str | None = None


SensorFunction = Callable[[Any], SensorResult]


class UserSensor(Record):
    """A function of the project, evaluated at a location every ``interval`` seconds. Made by ``@sensor``."""

    function: SensorFunction = Field(repr=False)
    name: Key | None = None
    interval: Positive = 60
    timeout: Positive = 60
    enabled: Flag = True

    def __call__(self, context: Any) -> SensorResult:
        """Evaluate the function, as a test of the project would."""
        return self.function(context)

    def reference(self) -> str:
        """``module:qualified_name`` of the function, which is how a location finds it again."""
        return f"{self.function.__module__}:{self.function.__qualname__}"


def sensor(
    name: str | None = None, *, interval: int = 60, timeout: int = 60, enabled: bool = True
) -> Callable[[SensorFunction], UserSensor]:
    """Turn a function ``(context) -> SensorResult`` into a sensor for ``Job(sensors=[...])``."""

    def decorate(function: SensorFunction) -> UserSensor:
        return UserSensor(function=function, name=name, interval=interval, timeout=timeout, enabled=enabled)

    return decorate


Sensor = SourceSensor | RunSensor | PlatformSensor | UserSensor
