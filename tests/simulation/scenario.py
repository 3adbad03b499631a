"""The installation of one seed: when it starts, its targets, and the project versions that are published to it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from chalicelib.projects.bundle import SnapshotIndex
from tests.snapshots import index_of, job

# Quiet days, and the hours before clocks change: forward, back, by half an hour, at the end of a year.
STARTS = (
    datetime(2026, 1, 14, 11, 50, tzinfo=UTC),
    datetime(2026, 2, 28, 23, 20, tzinfo=UTC),
    datetime(2026, 3, 8, 6, 20, tzinfo=UTC),
    datetime(2026, 3, 29, 0, 20, tzinfo=UTC),
    datetime(2026, 4, 4, 14, 30, tzinfo=UTC),
    datetime(2026, 10, 3, 15, 0, tzinfo=UTC),
    datetime(2026, 10, 25, 0, 20, tzinfo=UTC),
    datetime(2026, 11, 1, 5, 20, tzinfo=UTC),
    datetime(2026, 12, 31, 23, 30, tzinfo=UTC),
)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kolkata")
CRONS = (
    "* * * * *", "*/2 * * * *", "*/5 * * * *", "*/7 * * * *", "*/15 * * * *", "3-59/20 * * * *", "5 * * * *",
    "0 */2 * * *", "30 1,2,3 * * *", "15 2 * * *", "0,20,40 0-6 * * *", "5,35 6-14 * * *", "0 0 * * *",
    "10 0,12 * * 1-5", "*/10 2 * * *", "0 2,3 * * *",
)  # fmt: skip
SPARSE_CRONS = ("15 2 * * *", "0 0 * * *", "10 0,12 * * 1-5", "25 * * * *", "50 */2 * * *", "0 */6 * * *")
RELATIONS = ("orders", "customers", "payments", "shipments", "returns")
JOBS = ("load", "clean", "marts", "export", "audit")
VERSIONS = 4
TIMEOUT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Target:
    """A target and what the simulation must know of it on its own."""

    location: str
    target: str
    warehouse: str
    settle_seconds: int
    single_writer: bool


@dataclass(frozen=True, slots=True)
class Version:
    """A compiled version of a project."""

    index: SnapshotIndex
    snapshot_id: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything of a seed that does not happen in time."""

    start: datetime
    targets: tuple[Target, ...]
    versions: dict[tuple[str, str], tuple[Version, ...]]
    pool_limit: int
    lambda_limit: int
    container_limit: int
    shards: int
    sparse: bool
    losing: float
    # days after which retention removes what may go
    kept_days: int
    # of the machine of the API and of those that schedule; the latter ask their own clock whether to look at a shard
    machine_errors: tuple[float, ...]


def draw_scenario(chance: random.Random) -> Scenario:
    """One installation."""
    # Where little is due, a shard may sleep; and where wake-ups are lost, only the hint brings the scheduler back.
    sparse = chance.random() < 0.3
    shared = chance.random() < 0.5
    single = chance.random() < 0.25
    targets = (
        Target("cafe", "dev", "lake" if shared else "cafe/dev", chance.choice((0, 60, 180, 400)), single),
        Target("shop", "prod", "lake" if shared else "shop/prod", chance.choice((0, 120, 240)), single and shared),
    )
    return Scenario(
        start=chance.choice(STARTS),
        targets=targets,
        versions={(t.location, t.target): _versions(chance, SPARSE_CRONS if sparse else CRONS) for t in targets},
        pool_limit=chance.choice((2, 3)),
        lambda_limit=chance.choice((1, 2)),
        container_limit=chance.choice((1, 2, 4)),
        shards=chance.choice((1, 1, 2)),
        sparse=sparse,
        losing=0.5 if sparse else 0.01,
        kept_days=chance.choice((1, 1, 2)),
        machine_errors=(
            chance.choice((-3.0, 0.0, 3_600.0, -3_600.0)),
            chance.choice((-3.0, 0.0)),
            chance.choice((0.0, 3.0)),
        ),
    )


def _versions(chance: random.Random, crons: Sequence[str]) -> tuple[Version, ...]:
    """Versions of one project: each changes some jobs of the one before."""
    jobs = {key: _draw_job(chance, key, crons) for key in chance.sample(JOBS, chance.randint(2, 4))}
    versions = [_version(tuple(jobs.values()))]
    while len(versions) < VERSIONS:
        key = chance.choice(JOBS)
        if key in jobs and len(jobs) > 1 and chance.random() < 0.4:
            del jobs[key]
        else:
            jobs[key] = _draw_job(chance, key, crons)
        versions.append(_version(tuple(jobs.values())))
    return tuple(versions)


Retries = tuple[int, int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a version says of one job. ``also`` are those of its relations that no node writes."""

    key: str
    relations: tuple[str, ...]
    also: tuple[str, ...]
    schedules: tuple[tuple[str, str, str, bool], ...]
    concurrency: int
    weight: int
    worker: str
    retries: Retries | None


def _draw_job(chance: random.Random, key: str, crons: Sequence[str]) -> JobFacts:
    relations = tuple(sorted(chance.sample(RELATIONS, chance.choice((0, 1, 1, 2, 3)))))
    schedules = tuple(
        (
            chance.choice(CRONS),
            chance.choice(ZONES),
            chance.choice(("none", "none", "run_latest")),
            chance.random() < 0.85,
        )
        for _ in range(chance.choice((0, 1, 1, 2)))
    )
    return JobFacts(
        key,
        relations,
        relations[:1] if chance.random() < 0.2 else (),
        schedules,
        chance.choice((1, 1, 2)),
        chance.choice((0, 0, 1, 2)),
        chance.choice(("container", "container", "lambda")),
        _draw_retries(chance),
    )


def _draw_retries(chance: random.Random) -> Retries | None:
    if chance.random() < 0.4:
        return None
    on = chance.choice((("launch_failed",), ("lost",), ("failed", "lost"), ("failed", "launch_failed", "lost")))
    return chance.choice((1, 1, 2)), chance.choice((0, 5, 60)), on


def node_of(relation: str) -> str:
    """The node that writes a relation."""
    return f"model.{relation}"


@lru_cache(maxsize=4_096)
def _job(facts: JobFacts) -> dict[str, Any]:
    key = facts.key
    triggers = [
        {
            "name": f"{key}/{number}",
            "kind": "schedule",
            "enabled": enabled,
            "spec": {"cron": cron, "timezone": zone, "dst": "cron", "on_resume": on_resume},
        }
        for number, (cron, zone, on_resume, enabled) in enumerate(facts.schedules)
    ]
    retries = facts.retries and {
        "max": facts.retries[0],
        "backoff": facts.retries[1],
        "factor": 2,
        "max_backoff": 120,
        "on": facts.retries[2],
    }
    return job(
        key,
        relations=facts.relations,
        also=facts.also,
        nodes=sorted(node_of(relation) for relation in facts.relations if relation not in facts.also),
        triggers=triggers,
        concurrency=facts.concurrency,
        pools=[{"name": "default", "weight": facts.weight}] if facts.weight else [],
        worker=facts.worker,
        timeout_seconds=TIMEOUT_SECONDS,
        retries=retries,
        inputs={"day": {"type": "date"}},
    )


def _graph() -> dict[str, Any]:
    """Every node reads the one before it."""
    names = [node_of(relation) for relation in RELATIONS]
    return {
        name: {"kind": "model", "relation": relation, "drift_key": "k" * 8, "depends_on": before}
        for name, relation, before in zip(names, RELATIONS, ([], *([name] for name in names)), strict=False)
    }


@lru_cache(maxsize=256)
def _version(jobs: Sequence[JobFacts]) -> Version:
    index = index_of([_job(facts) for facts in jobs], nodes=_graph())
    return Version(index, index.snapshot_id())
