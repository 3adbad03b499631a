"""A small published world for store tests: locations, targets, jobs and schedules, without a project on disk."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import psycopg.rows

from chalicelib.bootstrap import Stores, build_domains
from chalicelib.catalog.plan import shard_of
from chalicelib.catalog.ports import DeclaredTrigger
from chalicelib.cloud.ports import TaskService
from chalicelib.database import Database
from chalicelib.kernel.canonical import canonical_json
from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.ids import IdSource
from chalicelib.leases.boots import key_of
from chalicelib.leases.lowering import all_shards
from chalicelib.projects.bundle import JobDefinition
from chalicelib.runs.model import AcceptRequest, Outcome, Report, RunRequest, StartRequest
from chalicelib.scheduler.leadership import Leader, Leadership
from chalicelib.settings import Settings
from tests.doubles import HandClock, MemoryObjects, MemoryQueues, MemoryTable

BOOT = "boot_0000000000000001"
SNAPSHOT = "a" * 64


# Every table whose rows may make something due earlier (scheduler.md 5.7).
BEHIND_THE_DOOR = (
    *("runs", "claims", "write_claims", "slots", "pools", "locations", "targets", "jobs", "trigger_state", "backfills"),
)


DOOR = Path(__file__).with_name("door.sql")


def watch_the_door(owner_url: str) -> None:
    """Make every write of the product to those tables fail that holds neither the fence's nor the hint's lock."""
    with psycopg.connect(owner_url) as connection:
        connection.execute(DOOR.read_bytes())
        for table in BEHIND_THE_DOOR:
            connection.execute(
                f"CREATE TRIGGER watched AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION watch_the_door()".encode()
            )


class World:
    """The services over one real store, with queues, leases and objects in memory, and a clock that can be moved."""

    def __init__(
        self,
        application_url: str,
        *,
        container_slots: int = 200,
        clock: HandClock | None = None,
        tasks: TaskService | None = None,
    ) -> None:
        self.url = application_url
        self.at: datetime | None = None
        self.hand = clock
        self.clock = clock or SystemClock()
        self._direct = psycopg.connect(application_url, row_factory=psycopg.rows.dict_row, autocommit=True)
        self.database = Database(application_url, connections=12, read_now=self._now)
        self.ids = IdSource(self.clock, random.SystemRandom())
        self.leases, self.hints, self.queues, self.objects = (
            MemoryTable(),
            MemoryTable(),
            MemoryQueues(),
            MemoryObjects(),
        )
        stores = Stores(self.database, self.leases, self.hints, self.queues, self.objects, tasks)
        settings = Settings(stage="test", container_slots=container_slots)
        self.domains = build_domains(settings, stores, self.clock, self.ids)
        self.access, self.schedules, self.runs = self.domains.access, self.domains.schedules, self.domains.runs
        self.dispatch, self.scheduler = self.domains.dispatch, self.domains.scheduler

    def _now(self, connection: psycopg.Connection[Any]) -> datetime:
        if self.at is not None:
            return self.at
        if self.hand is not None:
            return self.hand.now()
        row: Any = connection.execute("SELECT clock_timestamp() AS now").fetchone()
        return datetime.fromisoformat(row["now"].isoformat())

    def close(self) -> None:
        self._direct.close()
        self.database.close()

    def sql(self, text: str, *values: object) -> list[dict[str, Any]]:
        cursor = self._direct.execute(text.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def target(
        self, location: str = "cafe", target: str = "dev", *, single_writer: bool = False, settle: int = 0
    ) -> None:
        self.sql("INSERT INTO locations VALUES (%s, false) ON CONFLICT DO NOTHING", location)
        self.sql(
            "INSERT INTO targets VALUES (%s, %s, %s, %s, %s, 'lower', '{}', NULL)",
            location, target, f"{location}/{target}", settle, single_writer,
        )  # fmt: skip

    def publish(
        self,
        jobs: Mapping[str, Mapping[str, Any]],
        *,
        location: str = "cafe",
        target: str = "dev",
        snapshot: str = SNAPSHOT,
        shards: int = 1,
        graph: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Make ``jobs`` (key -> fields of the definition) current, with their schedules.

        ``graph`` are the snapshot's nodes with what each depends on; a node ``x:name`` has the kind ``x``.
        """
        definitions = {key: definition(key, **fields) for key, fields in jobs.items()}
        self.sql(
            "INSERT INTO snapshots VALUES (%s, %s, %s, 'command', '1', %s, NULL, false, '[]', clock_timestamp()) ON CONFLICT DO NOTHING",
            snapshot, location, target, "b" * 64,
        )  # fmt: skip
        self.sql("DELETE FROM jobs WHERE location = %s AND target = %s", location, target)
        for key, item in definitions.items():
            body = canonical_json(item.model_dump(mode="json"))
            self.sql("INSERT INTO snapshot_jobs VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", snapshot, key, body)
            shard = shard_of(location, target, key, shards)
            self.sql("INSERT INTO jobs VALUES (%s, %s, %s, %s, %s)", location, target, key, snapshot, shard)
        for node, parents in (graph or {}).items():
            kind, _, name = node.partition(":")
            self.sql(
                "INSERT INTO snapshot_nodes VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                snapshot, node, f"db.s.{name}", f"key of {node}", canonical_json({"kind": kind, "depends_on": parents}),
            )  # fmt: skip
        self.merge(definitions, location, target, shards)

    def merge(self, definitions: Mapping[str, JobDefinition], location: str, target: str, shards: int) -> None:
        declared = [
            DeclaredTrigger(
                trigger_id=f"{location}/{target}/{trigger.name}",
                location=location,
                target=target,
                name=trigger.name,
                job=key,
                kind=trigger.kind,
                spec=dict(trigger.spec),
                enabled=trigger.enabled,
                shard=shard_of(location, target, key, shards),
            )
            for key, item in definitions.items()
            for trigger in item.triggers
        ]
        self.domains.lowering.lowered(all_shards, lambda tx: self.schedules.merge(tx, location, target, declared))

    # --- the life of a run, by the services

    def request(self, job: str, run_id: str | None = None, **inputs: Any) -> str:
        request = RunRequest(run_id=run_id or self.ids.mint("run"), inputs=inputs)
        view, _ = self.runs.request("cafe", "dev", job, request, "tester")
        return view.run_id

    def run_pass(self) -> list[str]:
        return self.scheduler.run_pass(0).claimed

    def open_boot(self, boot_id: str = BOOT, partition: int = 0) -> None:
        pk, sk = key_of(boot_id, partition)
        self.leases.put_new(
            pk, sk, {"owner_token": "own_test", "counter": 1, "lease_seconds": 30, "cancel": {}, "revoked": {}}
        )

    def signals(self) -> list[object]:
        """What was written into the boot's lease item, oldest first."""
        return [values[":value"] for sort_key, values in self.leases.updates if sort_key == f"boot#{BOOT}"]

    def lead(self, shard: int = 0, *, watch: bool = False) -> Leader | None:
        """Try to lead a shard, as an invocation of its own does."""
        return Leadership(self.database, self.leases, self.ids, self.clock, lease_seconds=30).lead(shard, watch=watch)

    def leader(self, shard: int = 0, *, watch: bool = False) -> Leader:
        """The leadership of a shard, which must be had."""
        leader = self.lead(shard, watch=watch)
        assert leader is not None
        return leader

    def claim_of(self, run_id: str) -> str:
        claim = self.runs.run(run_id).claim
        assert claim is not None
        return claim.claim_id

    def accept(self, run_id: str, boot_id: str = BOOT) -> str:
        claim_id = self.claim_of(run_id)
        request = AcceptRequest(claim_id=claim_id, boot_id=boot_id, boot_partition=0, worker_kind="container")
        self.runs.accept(run_id, request)
        return claim_id

    def start(self, run_id: str, boot_id: str = BOOT) -> str:
        claim_id = self.accept(run_id, boot_id)
        self.runs.start(run_id, claim_id, StartRequest(boot_id=boot_id))
        return claim_id

    def finish(
        self, run_id: str, claim_id: str, state: str = "succeeded", *, settled: bool = True, reason: str | None = None
    ) -> None:
        self.runs.report(run_id, claim_id, terminal(state, settled=settled, reason=reason))

    def state(self, run_id: str) -> str:
        return self.runs.run(run_id).state


def terminal(
    state: str, *, settled: bool = True, reason: str | None = None, key: str = "rep_terminal_000000"
) -> Report:
    outcome = Outcome.model_validate({"state": state, "end_reason": reason, "settled": settled})
    return Report(report_key=key, kind="terminal", outcome=outcome)


def schedule(
    cron: str, timezone: str = "UTC", *, name: str, enabled: bool = True, on_resume: str = "none"
) -> dict[str, Any]:
    spec = {"cron": cron, "timezone": timezone, "dst": "cron", "on_resume": on_resume}
    return {"name": name, "kind": "schedule", "enabled": enabled, "spec": spec}


def definition(
    job: str,
    *,
    relations: Sequence[str] = (),
    triggers: Sequence[Mapping[str, Any]] = (),
    concurrency: int = 1,
    pools: Sequence[Mapping[str, Any]] = (),
    inputs: Mapping[str, Any] | None = None,
    worker: str = "container",
    timeout_seconds: int = 60,
    nodes: Sequence[str] = (),
    also: Sequence[str] = (),
    retries: Mapping[str, Any] | None = None,
) -> JobDefinition:
    return JobDefinition.model_validate(
        {
            "job": job,
            "build": {"kind": "command", "argv": ["true"]},
            "nodes": sorted(nodes),
            "relations": sorted(relations),
            "also": sorted(also),
            "worker": worker,
            "timeout_seconds": timeout_seconds,
            "concurrency": concurrency,
            "pools": list(pools),
            "retries": retries,
            "inputs": dict(inputs or {}),
            "triggers": list(triggers),
        }
    )
