"""What the collector found, as it travels from the project's interpreter to ours: jobs whose nodes are unresolved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, JsonValue

from ..authoring.base import Key, WorkerKind
from ..authoring.builds import Build
from ..authoring.collect import FoundJob
from ..authoring.naming import NamedTrigger, named_triggers, watched_jobs
from ..authoring.policies import Input, Pool, Retry, Writes
from ..authoring.triggers import PlatformSensor, RunSensor, Schedule, SourceSensor
from ..kernel.records import Record
from .bundle import JobDefinition, ScheduleSpec, TriggerDefinition


class JobDraft(Record):
    """A declared job before its selectors are resolved; ``place`` tells where it was found."""

    job: Key
    place: str
    description: str
    build: Build
    writes: Writes
    worker: WorkerKind
    timeout_seconds: int
    concurrency: int
    pools: tuple[Pool, ...]
    retries: Retry | None
    inputs: dict[str, Input]
    on_empty: Literal["fail", "succeed"]
    targets: tuple[str, ...] | None
    triggers: tuple[TriggerDefinition, ...]
    watches: tuple[str, ...]

    def definition(
        self, *, build: Build, nodes: Iterable[str], relations: Iterable[str], also: Iterable[str]
    ) -> JobDefinition:
        """The definition that is published, with everything sorted."""
        return JobDefinition(
            job=self.job,
            description=self.description,
            build=build,
            nodes=tuple(sorted(set(nodes))),
            relations=tuple(sorted(set(relations))),
            also=tuple(sorted(set(also))),
            worker=self.worker,
            timeout_seconds=self.timeout_seconds,
            concurrency=self.concurrency,
            pools=tuple(sorted(self.pools, key=lambda pool: pool.name)),
            retries=self.retries,
            inputs=self.inputs,
            on_empty=self.on_empty,
            triggers=self.triggers,
        )


class CollectedError(Record):
    """An error of the collector: a code of ``kernel.errors`` and its text."""

    code: str
    detail: str
    fields: tuple[tuple[str, str, str], ...] = ()


class Collected(Record):
    """The collector's answer. ``packages`` maps distribution names to installed versions."""

    format: Literal[1] = 1
    packages: dict[str, str] = Field(default_factory=dict)
    jobs: tuple[JobDraft, ...] = ()
    error: CollectedError | None = None


def draft_of(found: FoundJob) -> JobDraft:
    """The draft of a collected job. Raises ``InvalidDeclaration`` for missing or repeated trigger names."""
    job = found.job
    triggers = named_triggers(job)
    return JobDraft(
        job=job.key,
        place=found.place,
        description=job.description,
        build=job.build,
        writes=job.effective_writes(),
        worker=job.worker,
        timeout_seconds=job.timeout_seconds(),
        concurrency=job.concurrency,
        pools=tuple(job.pools),
        retries=job.retries,
        inputs=job.inputs,
        on_empty=job.on_empty,
        targets=None if job.targets is None else tuple(job.targets),
        triggers=tuple(sorted(map(_trigger, triggers), key=lambda trigger: trigger.name)),
        watches=watched_jobs(triggers),
    )


def _trigger(named: NamedTrigger) -> TriggerDefinition:
    return TriggerDefinition(name=named.name, kind=named.kind, enabled=named.trigger.enabled, spec=_spec(named))


def _spec(named: NamedTrigger) -> dict[str, JsonValue]:
    trigger = named.trigger
    if isinstance(trigger, Schedule):
        spec = ScheduleSpec(cron=trigger.cron, timezone=trigger.timezone, dst=trigger.dst, on_resume=trigger.on_resume)
        return spec.model_dump(mode="json")
    if isinstance(trigger, SourceSensor):
        return {
            "sources": _sorted(trigger.sources),
            "fire_on_first": trigger.fire_on_first,
            "interval": trigger.interval,
        }
    if isinstance(trigger, RunSensor):
        return {"jobs": _sorted(trigger.jobs), "statuses": _sorted(trigger.statuses)}
    if isinstance(trigger, PlatformSensor):
        return {"conditions": _sorted(trigger.conditions)}
    return {"function": trigger.reference(), "interval": trigger.interval, "timeout": trigger.timeout}


def _sorted(texts: Iterable[str]) -> list[JsonValue]:
    """Order has no meaning in these fields, so writing them in another order is no edit."""
    return [*sorted(set(texts))]
