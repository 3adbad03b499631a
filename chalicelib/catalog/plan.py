"""What is checked before a snapshot is stored, and what is derived from it. Pure.

Selectors were resolved and schedules checked when the project was compiled; the server believes none of it, since
another client may have sent the request. Every error names its field: ``jobs.orders.triggers.orders/schedule.timezone``.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from pydantic import ValidationError

from ..cron import validate
from ..kernel import limits
from ..kernel.errors import FieldError, InvalidRequest, InvalidSchedule, NeverFits, TidemillError
from ..projects.bundle import JobDefinition, ScheduleSpec, SnapshotIndex, TriggerDefinition
from ..settings import WORKER_SETTING
from .ports import DeclaredTrigger

_TRIGGER_NAME = re.compile(r"[a-z0-9_-]{1,100}/[a-z0-9_-]{1,100}")


def shard_of(location: str, target: str, job: str, shards: int) -> int:
    """The scheduler shard of a job: the same in every process and release."""
    digest = hashlib.sha256(f"{location}/{target}/{job}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % shards


def declared_triggers(index: SnapshotIndex, location: str, target: str, shards: int) -> list[DeclaredTrigger]:
    """All triggers of the snapshot, by name."""
    found = [
        DeclaredTrigger(
            trigger_id=f"{location}/{target}/{trigger.name}",
            location=location,
            target=target,
            name=trigger.name,
            job=job.job,
            kind=trigger.kind,
            spec=dict(trigger.spec),
            enabled=trigger.enabled,
            shard=shard_of(location, target, job.job, shards),
        )
        for job in index.jobs.values()
        for trigger in job.triggers
    ]
    return sorted(found, key=lambda trigger: trigger.name)


def check_index(index: SnapshotIndex, pools: Mapping[str, int], *, now: datetime) -> list[str]:
    """Refuse what could not be run, naming every wrong field of one kind at once; returns warnings.

    ``pools`` are limits by name, the implicit ones of the worker kinds (``worker:lambda``) among them. A pool that is not
    among them is made by the publication, with the limit that new pools get.
    Raises ``InvalidRequest``, ``InvalidSchedule`` or ``NeverFits``.
    """
    _check_sizes(index)
    _refuse(InvalidRequest, [*_shape_problems(index)])
    schedule_problems, warnings = _check_schedules(index, now)
    _refuse(InvalidSchedule, schedule_problems)
    _refuse(NeverFits, [*_too_heavy(index, pools)])
    return [*warnings, *_pool_warnings(index, pools), *_sensor_warnings(index), *_retry_warnings(index)]


def new_pools(index: SnapshotIndex, pools: Mapping[str, int]) -> list[str]:
    """The pools that jobs name and that are not there yet, by name."""
    return sorted({pool.name for job in index.jobs.values() for pool in job.pools} - pools.keys())


def _pool_warnings(index: SnapshotIndex, pools: Mapping[str, int]) -> list[str]:
    return [
        f"pools.{name}: is new, with a limit of {limits.POOL_LIMIT_DEFAULT}; "
        f"change it with `tidemill admin pool set {name} LIMIT`"
        for name in new_pools(index, pools)
    ]


def _refuse(kind: type[TidemillError], problems: Sequence[FieldError]) -> None:
    if problems:
        raise kind("; ".join(f"{one.field}: {one.message}" for one in problems), fields=problems)


def _check_sizes(index: SnapshotIndex) -> None:
    triggers = sum(len(job.triggers) for job in index.jobs.values())
    for field, count, most in (
        ("index.nodes", len(index.nodes), limits.NODES_PER_SNAPSHOT),
        ("index.jobs", len(index.jobs), limits.JOBS_PER_SNAPSHOT),
        ("index.jobs.triggers", triggers, limits.TRIGGERS_PER_SNAPSHOT),
    ):
        if count > most:
            raise InvalidRequest.of_field(field, f"{count} are more than the {most} that one snapshot may have")


def _shape_problems(index: SnapshotIndex) -> Iterator[FieldError]:
    yield from _repeated_documents(index)
    for key, job in index.jobs.items():
        if job.job != key:
            yield _wrong(f"jobs.{key}.job", f"is {job.job!r}; it must be the key that it stands under")
        unknown = sorted(set(job.nodes) - index.nodes.keys())
        if unknown:
            yield _wrong(f"jobs.{key}.nodes", f"{unknown[0]!r} is no node of the snapshot")
        longest = limits.TIMEOUT_MAX_SECONDS[job.worker]
        if job.timeout_seconds > longest:
            yield _wrong(f"jobs.{key}.timeout_seconds", f"at most {longest} seconds on worker={job.worker!r}")
        yield from _trigger_problems(key, job)
        for pool, times in Counter(pool.name for pool in job.pools).items():
            if times > 1:
                yield _wrong(f"jobs.{key}.pools.{pool}", "is named twice; give it once with the whole weight")


def _repeated_documents(index: SnapshotIndex) -> Iterator[FieldError]:
    for key, times in Counter(document.key for document in index.documents).items():
        if times > 1:
            yield _wrong(f"documents.{key}", "is listed more than once")


def _trigger_problems(key: str, job: JobDefinition) -> Iterator[FieldError]:
    for name, times in Counter(trigger.name for trigger in job.triggers).items():
        field = f"jobs.{key}.triggers.{name}"
        if times > 1:
            yield _wrong(field, "two triggers have this name")
        if not _TRIGGER_NAME.fullmatch(name) or not name.startswith(f"{key}/"):
            yield _wrong(field, f"a trigger's name is {key}/ and 1 to 100 of a-z, 0-9, '_' and '-'")


def _too_heavy(index: SnapshotIndex, pools: Mapping[str, int]) -> Iterator[FieldError]:
    for key, job in index.jobs.items():
        if pools[f"worker:{job.worker}"] < 1:
            message = (
                f"this installation runs no worker of the kind {job.worker!r}; use another worker, or have its "
                f"operator raise {WORKER_SETTING[job.worker]}"
            )
            yield FieldError(f"jobs.{key}.worker", NeverFits.code, message)
        for pool in job.pools:
            limit = pools.get(pool.name, limits.POOL_LIMIT_DEFAULT)
            if pool.weight > limit:
                message = (
                    f"weight {pool.weight} is more than the pool's limit of {limit}; give the job less, or first "
                    f"`tidemill admin pool set {pool.name} {pool.weight}`"
                )
                yield FieldError(f"jobs.{key}.pools.{pool.name}", NeverFits.code, message)


def _check_schedules(index: SnapshotIndex, now: datetime) -> tuple[list[FieldError], list[str]]:
    problems: list[FieldError] = []
    warnings: list[str] = []
    for key, job in index.jobs.items():
        for trigger in job.triggers:
            if trigger.kind != "schedule":
                continue
            field = f"jobs.{key}.triggers.{trigger.name}"
            try:
                warnings += [f"{field}.{warning}" for warning in _schedule_warnings(trigger, now)]
            except ValidationError as error:
                problems += [_of_pydantic(field, item) for item in error.errors()]
            except InvalidSchedule as error:
                problems += [FieldError(f"{field}.{one.field}", one.code, one.message) for one in error.fields]
    return problems, warnings


def _schedule_warnings(trigger: TriggerDefinition, now: datetime) -> tuple[str, ...]:
    spec = ScheduleSpec.model_validate(trigger.spec)
    return validate(spec.cron, spec.timezone, after=now).warnings


def _of_pydantic(field: str, item: Mapping[str, object]) -> FieldError:
    place = item["loc"]
    inner = ".".join(map(str, place)) if isinstance(place, tuple) else str(place)
    return FieldError(f"{field}.{inner}", InvalidSchedule.code, str(item["msg"]))


def _sensor_warnings(index: SnapshotIndex) -> list[str]:
    names = sorted(t.name for job in index.jobs.values() for t in job.triggers if t.kind != "schedule")
    return [f"{_listed(names)}: stored; evaluating sensors comes with a later release"] if names else []


def _retry_warnings(index: SnapshotIndex) -> list[str]:
    names = sorted(key for key, job in index.jobs.items() if job.retries is not None)
    return [f"{_listed(names)}: retries are stored; acting on them comes with a later release"] if names else []


def _listed(names: Sequence[str]) -> str:
    more = len(names) - limits.RELATIONS_NAMED
    return ", ".join(names[: limits.RELATIONS_NAMED]) + (f" and {more} more" if more > 0 else "")


def _wrong(field: str, message: str) -> FieldError:
    return FieldError(field, InvalidRequest.code, message)
