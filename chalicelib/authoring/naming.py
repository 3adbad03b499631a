"""Trigger names (S2): a shorthand name never changes when its cron text or zone does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from ..kernel.errors import InvalidDeclaration
from .jobs import Job
from .triggers import PlatformSensor, RunSensor, Schedule, Sensor, SourceSensor, UserSensor

Kind = Literal["schedule", "source", "run", "platform", "user"]
_KINDS: Mapping[type, Kind] = {
    Schedule: "schedule",
    SourceSensor: "source",
    RunSensor: "run",
    PlatformSensor: "platform",
    UserSensor: "user",
}


@dataclass(frozen=True, slots=True)
class NamedTrigger:
    """A trigger with the name under which its state and history are kept."""

    name: str
    kind: Kind
    trigger: Schedule | Sensor


def named_triggers(job: Job) -> tuple[NamedTrigger, ...]:
    """The triggers of ``job``: ``<job>/<name>``, or ``<job>/<kind>`` for the only unnamed one of a kind.

    Raises ``InvalidDeclaration`` where a name is missing or used twice.
    """
    triggers = [NamedTrigger(_name(job, item), _KINDS[type(item)], item) for item in (*job.schedules, *job.sensors)]
    _check_unnamed(job)
    seen: set[str] = set()
    for named in triggers:
        if named.name in seen:
            raise InvalidDeclaration.of_field(f"{job.key}.triggers", f"two triggers are called {named.name!r}")
        seen.add(named.name)
    return tuple(triggers)


def _name(job: Job, trigger: Schedule | Sensor) -> str:
    own = trigger.name
    if own is None and isinstance(trigger, UserSensor):
        # a function has a name of its own, and a lambda's is no key
        own = trigger.function.__name__.strip("<>").lower()
    return f"{job.key}/{own or _KINDS[type(trigger)]}"


def _check_unnamed(job: Job) -> None:
    for kind, name in _KINDS.items():
        if kind is UserSensor:  # named by its function
            continue
        unnamed = [item for item in (*job.schedules, *job.sensors) if isinstance(item, kind) and item.name is None]
        if len(unnamed) > 1:
            raise InvalidDeclaration.of_field(
                f"{job.key}.{'schedule' if name == 'schedule' else 'sensors'}",
                f"{len(unnamed)} unnamed triggers of the kind {name}; give each a name",
            )


def watched_jobs(triggers: Iterable[NamedTrigger]) -> tuple[str, ...]:
    """The jobs that run sensors among ``triggers`` watch."""
    return tuple(job for named in triggers if isinstance(named.trigger, RunSensor) for job in named.trigger.jobs)


def check_run_sensors(watched: Mapping[str, Iterable[str]]) -> None:
    """Refuse a run sensor on its own job, on an unknown job, or in a cycle; ``watched`` maps job -> watched jobs."""
    for job, others in watched.items():
        for other in others:
            if other == job:
                raise InvalidDeclaration.of_field(f"{job}.sensors", "a run sensor cannot watch its own job")
            if other not in watched:
                raise InvalidDeclaration.of_field(
                    f"{job}.sensors", f"the run sensor watches {other!r}, which is no job"
                )
    try:
        TopologicalSorter(watched).prepare()
    except CycleError as cycle:
        path = " -> ".join(cycle.args[1])
        raise InvalidDeclaration(f"the run sensors form a cycle: {path}; remove one of them") from None
