"""The record that holds the others, and the rules between its fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ..kernel.limits import TIMEOUT_DEFAULT_SECONDS, TIMEOUT_MAX_SECONDS
from .base import Key, Many, Positive, Record, Texts, WorkerKind
from .builds import Command, Dbt, SqlBuild
from .policies import Input, Pool, Retry, Writes
from .triggers import PlatformSensor, RunSensor, Schedule, Sensor, SourceSensor, UserSensor


def _many_schedules(value: object) -> object:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _instance_of(*kinds: type) -> BeforeValidator:
    """Accept our own records only, so that the error names them and not the branches of a union."""

    def check(value: object) -> object:
        if not isinstance(value, kinds):
            raise ValueError(f"give {' or '.join(kind.__name__ for kind in kinds)}, not {type(value).__name__}")  # noqa: TRY004 - pydantic wants ValueError
        return value

    return BeforeValidator(check)


BuildField = Annotated[SqlBuild | Dbt | Command, _instance_of(SqlBuild, Dbt, Command)]
SensorField = Annotated[Sensor, _instance_of(SourceSensor, RunSensor, PlatformSensor, UserSensor)]


class Job(Record):
    """A named build: what to run, with which inputs, limits and triggers. ``timeout`` is seconds.

    ``writes`` is ``"compiled"`` (relations of the resolved nodes), a list of relations, or ``Writes(...)``; a
    ``Command`` has no compiled relations, so it must say (an empty list is an answer). ``targets`` limits the job to
    those targets of the project file.
    """

    key: Key
    build: BuildField
    schedule: Annotated[Schedule | Sequence[Schedule], BeforeValidator(_many_schedules)] = ()
    sensors: Many[SensorField] = ()
    writes: Literal["compiled"] | Texts | Writes | None = None
    concurrency: Positive = 1
    pools: Many[Pool] = ()
    worker: WorkerKind = "container"
    timeout: Positive | None = None
    retries: Retry | None = None
    inputs: dict[Key, Input] = Field(default_factory=dict)
    on_empty: Literal["fail", "succeed"] = "fail"
    targets: Annotated[Texts, Field(min_length=1)] | None = None
    description: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_timeout()
        self._check_writes()
        self._check_inputs()
        names = [pool.name for pool in self.pools]
        if len(set(names)) != len(names):
            raise ValueError("pools: a pool is named twice; give it once with the whole weight")
        return self

    def _check_timeout(self) -> None:
        longest = TIMEOUT_MAX_SECONDS[self.worker]
        if self.timeout is not None and self.timeout > longest:
            raise ValueError(f"timeout: at most {longest} seconds on worker={self.worker!r}")

    def _check_writes(self) -> None:
        if not isinstance(self.build, Command):
            return
        if self.writes is None:
            raise ValueError("writes: a Command must say what it writes; writes=[] when it writes no relation")
        if self.writes == "compiled" or (isinstance(self.writes, Writes) and self.writes.compiled):
            raise ValueError("writes: a Command has no compiled relations; give a list of relations")

    def _check_inputs(self) -> None:
        command = isinstance(self.build, Command)
        for name, declared in self.inputs.items():
            place = declared.maps_to.partition(":")[0]
            if command and place != "env":
                raise ValueError(f"inputs.{name}.maps_to: a Command takes its inputs from the environment; use env")
            if place == "cursor" and not isinstance(self.build, SqlBuild):
                raise ValueError(f"inputs.{name}.maps_to: only SqlBuild has typed cursors; use option:start")

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules, whether one or several were given."""
        return (self.schedule,) if isinstance(self.schedule, Schedule) else tuple(self.schedule)

    def timeout_seconds(self) -> int:
        """The declared time-out, or the default of the worker kind."""
        return self.timeout if self.timeout is not None else TIMEOUT_DEFAULT_SECONDS[self.worker]

    def effective_writes(self) -> Writes:
        """What ``writes`` means, in one form."""
        if isinstance(self.writes, Writes):
            return self.writes
        if self.writes is None or self.writes == "compiled":
            return Writes()
        return Writes(compiled=False, also=self.writes)
