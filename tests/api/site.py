"""A client of the API under test, and a small published project behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from chalice.app import Chalice
from chalice.test import Client

from chalicelib.access import TokenScope
from chalicelib.access.model import Grant
from chalicelib.bootstrap import Services, Stores, build_domains
from chalicelib.cloud.aws import Aws
from chalicelib.entrypoints.api import build_app
from chalicelib.leases.boots import key_of
from chalicelib.projects.bundle import SnapshotIndex

LOCATION, TARGET, JOB = "cafe", "dev", "orders"
TRIGGER = "orders/schedule"
HERE = f"/v1/locations/{LOCATION}/targets/{TARGET}"
BOOT = "boot_0000000000000001"
BACKFILL = "bkf_00000000000000000000000000000001"
RUN = "run_00000000000000000000000000000001"
PUBLICATION = "pub_00000000000000000000000000000001"


@dataclass(frozen=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)


class Caller:
    """Sends requests to an application as API Gateway does, with one token or none."""

    def __init__(self, app: Chalice, token: str | None = None) -> None:
        self.app = app
        self.token = token

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answered:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            sent.setdefault("authorization", f"Bearer {self.token}")
        answer = Client(self.app).http.request(method, path, headers=sent, body=body)
        return Answered(answer.status_code, {k.lower(): v for k, v in answer.headers.items()}, answer.body.decode())

    def get(self, path: str) -> Answered:
        return self.send("GET", path)

    def post(self, path: str, body: object = None) -> Answered:
        return self.json("POST", path, {} if body is None else body)

    def json(self, method: str, path: str, body: object) -> Answered:
        return self.send(method, path, json.dumps(body).encode(), content_type="application/json")


class Site:
    """One installation. What a test does not ask for is not made."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.app = build_app(lambda: services)

    def caller(self, token: str | None = None) -> Caller:
        return Caller(self.app, token)

    @cached_property
    def operator(self) -> Caller:
        return self.caller(self.services.access.issue("operator", TokenScope()).secret)

    def location_token(self, *permissions: Grant, location: str = LOCATION, target: str | None = None) -> str:
        self.services.locations.add(location)
        scope = TokenScope(location=location, target=target, permissions=permissions)
        return self.services.access.issue("location", scope).secret

    def holder(self, *permissions: Grant, location: str = LOCATION) -> Caller:
        return self.caller(self.location_token(*permissions, location=location))

    def publish(self) -> Answered:
        """A target with one job on a schedule that is not due during a test."""
        self.operator.post("/v1/admin/locations", {"location": LOCATION})
        self.operator.json("PUT", f"/v1/admin/locations/{LOCATION}/targets/{TARGET}", {"single_writer": True})
        return self.operator.post(f"{HERE}/snapshots", publication())

    def queued(self, run_id: str = RUN) -> str:
        assert self.operator.post(f"{HERE}/jobs/{JOB}/runs", {"run_id": run_id}).status == 201
        return run_id

    def claimed(self, run_id: str = RUN) -> str:
        """The claim of a published job's run."""
        self.queued(run_id)
        self.services.scheduler.run_pass(0)
        claim = self.services.runs.run(run_id).claim
        assert claim is not None
        return claim.claim_id

    def open_boot(self, boot_id: str = BOOT) -> None:
        pk, sk = key_of(boot_id, 0)
        attributes = {"owner_token": "own_test", "counter": 1, "lease_seconds": 30, "cancel": {}, "revoked": {}}
        assert self.services.aws.leases.put_new(pk, sk, attributes) is None

    def accepted(self, run_id: str = RUN) -> Caller:
        """The worker that holds the claim of a run."""
        claim_id = self.claimed(run_id)
        self.open_boot()
        answer = self.holder("work").post(f"/v1/worker/runs/{run_id}/accept", acceptance(claim_id))
        assert answer.status == 200, answer.text
        return self.caller(answer.body["worker_token"])

    def without_queues(self) -> Site:
        """The same store with queues that are not there."""
        services = self.services
        nowhere = Aws(services.settings.model_copy(update={"stage": "nowhere"}))
        aws = services.aws
        stores = Stores(services.database, aws.leases, aws.hints, nowhere.queues, aws.objects)
        domains = build_domains(services.settings, stores, services.clock, services.ids)
        return Site(replace(services, aws=nowhere, runs=domains.runs, catalog=domains.catalog))

    def woken(self) -> list[Any]:
        """The wake-ups that were sent, each taken once."""
        return self.received("tick")

    def received(self, queue: str) -> list[Any]:
        """The messages of a queue, each taken once."""
        found = []
        while received := self.services.aws.queues.receive(queue, wait_seconds=0, maximum=10):
            for message in received:
                self.services.aws.queues.delete(queue, message.receipt)
                found.append(json.loads(message.body))
        return found


def acceptance(claim_id: str, boot_id: str = BOOT) -> dict[str, Any]:
    return {"claim_id": claim_id, "boot_id": boot_id, "boot_partition": 0, "worker_kind": "container"}


def backfill(backfill_id: str = BACKFILL, **changes: Any) -> dict[str, Any]:
    """Over the only occurrence of the published schedule in a leap year."""
    place = {"location": LOCATION, "target": TARGET, "job": JOB}
    return {
        "backfill_id": backfill_id,
        **place,
        "over": "occurrences",
        "from": "2024-01-01",
        "to": "2025-01-01",
        **changes,
    }


def index(**changes: Any) -> SnapshotIndex:
    job = {
        "job": JOB,
        "build": {"kind": "command", "argv": ["true"]},
        "nodes": ["orders"],
        "relations": ["cafe.main.orders"],
        "worker": "container",
        "timeout_seconds": 60,
        "concurrency": 1,
        "triggers": [{"name": TRIGGER, "kind": "schedule", "spec": {"cron": "0 3 29 2 *", "timezone": "UTC"}}],
    }
    fields: dict[str, Any] = {
        "project": "cafe",
        "tool": "command",
        "tool_version": "1",
        "adapter": None,
        "case_rule": "lower",
        "git": {},
        "baseline": "b" * 64,
        "documents": [],
        "nodes": {"orders": {"kind": "command", "relation": "cafe.main.orders", "drift_key": "c" * 64}},
        "jobs": {JOB: job},
    }
    return SnapshotIndex.model_validate(fields | changes)


def publication(publication_id: str = PUBLICATION, **changes: Any) -> dict[str, Any]:
    found = index(**changes)
    return {
        "publication_id": publication_id,
        "snapshot_id": found.snapshot_id(),
        "index": found.model_dump(mode="json"),
    }
