"""Who may call what: every operation with every kind of caller, against a table written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Literal

import psycopg
import pytest

from chalicelib.access import TokenScope
from chalicelib.entrypoints.api.routing import Operation
from chalicelib.entrypoints.api.table import operations
from chalicelib.kernel.canonical import sha256_text
from tests.api.site import BACKFILL, BOOT, HERE, LOCATION, RUN, TARGET, Answered, Caller, Site, backfill, publication
from tests.postgres import PostgresServer

Where = Literal["open", "place", "own", "installation", "claim"]

# The permission of each operation, and where it must hold. A new operation needs a row here.
OPERATIONS: Mapping[str, tuple[str | None, Where]] = {
    "health": (None, "open"),
    "ready": (None, "open"),
    "openapi": (None, "open"),
    "upload_documents": ("snapshots.publish", "own"),
    "publish_snapshot": ("snapshots.publish", "place"),
    "list_snapshots": ("snapshots.read", "place"),
    "show_current_snapshot": ("snapshots.read", "place"),
    "show_snapshot": ("snapshots.read", "place"),
    "show_document": ("snapshots.read", "place"),
    "list_nodes_of_snapshot": ("snapshots.read", "place"),
    "list_jobs": ("triggers.read", "place"),
    "show_job": ("triggers.read", "place"),
    "request_run": ("runs.request", "place"),
    "list_triggers": ("triggers.read", "place"),
    "show_trigger": ("triggers.read", "place"),
    "change_trigger": ("triggers.manage", "place"),
    "list_ticks": ("triggers.read", "place"),
    "preview_trigger": ("triggers.read", "place"),
    "preview_schedule": ("triggers.read", "own"),
    "list_runs": ("runs.read", "own"),
    "show_run": ("runs.read", "place"),
    "list_nodes_of_run": ("runs.read", "place"),
    "list_events_of_run": ("runs.read", "place"),
    "why_run": ("runs.read", "place"),
    "list_logs_of_run": ("logs.read", "place"),
    "cancel_run": ("runs.cancel", "place"),
    "rerun_run": ("runs.request", "place"),
    "resolve_run": ("runs.resolve", "place"),
    "start_backfill": ("runs.request", "own"),
    "plan_backfill": ("runs.request", "own"),
    "list_backfills": ("runs.read", "own"),
    "show_backfill": ("runs.read", "place"),
    "list_items_of_backfill": ("runs.read", "place"),
    "pause_backfill": ("runs.request", "place"),
    "resume_backfill": ("runs.request", "place"),
    "cancel_backfill": ("runs.request", "place"),
    "list_alerts": ("runs.read", "own"),
    "list_pools": ("runs.read", "own"),
    "set_pool": ("administer", "installation"),
    "accept_run": ("worker.accept", "place"),
    "inputs_of_run": ("worker.run", "claim"),
    "start_run": ("worker.run", "claim"),
    "report_run": ("worker.run", "claim"),
    "upload_logs_of_run": ("worker.run", "claim"),
    "beat_boot": ("worker.accept", "own"),
    "end_boot": ("worker.ended", "own"),
    "list_locations": ("administer", "installation"),
    "add_location": ("administer", "installation"),
    "change_location": ("administer", "installation"),
    "set_target": ("administer", "installation"),
    "list_tokens": ("administer", "installation"),
    "issue_token": ("administer", "installation"),
    "revoke_token": ("administer", "installation"),
}
PUBLISHING = {"snapshots.publish", "snapshots.read", "triggers.read", "runs.read"}
WORKING = {"worker.accept", "worker.ended"}
GRANTED: Mapping[str, set[str]] = {
    "publisher": PUBLISHING,
    "publisher_elsewhere": PUBLISHING,
    "publisher_of_another_target": PUBLISHING,
    "boot": WORKING,
    "boot_elsewhere": WORKING,
    "worker": set(),
    "worker_of_another_run": set(),
}
UNKNOWN = {"nobody": "not_authenticated", "expired": "token_expired", "revoked": "token_revoked"}
CALLERS = ["operator", *GRANTED, *UNKNOWN]
DOCUMENT = "select 1"
CANCELLED = BACKFILL.replace("1", "2")


def expected(operation: str, caller: str) -> int:
    """The status of a refusal, or 200 for whatever comes after the permission."""
    permission, where = OPERATIONS[operation]
    if permission is None:
        return 200
    if caller in UNKNOWN:
        return 401
    if where == "claim":
        return {"worker": 200, "worker_of_another_run": 404}.get(caller, 403)
    if caller == "operator":
        return 200
    if where == "place" and caller in {"publisher_elsewhere", "publisher_of_another_target", "boot_elsewhere"}:
        return 404
    return 200 if permission in GRANTED[caller] else 403


@pytest.fixture(scope="module")
def world(shared_site: Site) -> Site:
    digest = sha256_text(DOCUMENT)
    documents = [{"key": "models/orders.sql", "sha256": digest, "size": len(DOCUMENT)}]
    shared_site.operator.post("/v1/admin/locations", {"location": LOCATION})
    shared_site.operator.json("PUT", f"/v1/admin/locations/{LOCATION}/targets/{TARGET}", {})
    shared_site.operator.json("PUT", f"/v1/admin/locations/{LOCATION}/targets/other", {})
    body = publication(documents=documents) | {"documents": {digest: DOCUMENT}}
    assert shared_site.operator.post(f"{HERE}/snapshots", body).status == 201
    return shared_site


@pytest.fixture(scope="module")
def callers(world: Site, postgres: PostgresServer) -> Mapping[str, Caller]:
    revoked = world.services.access.issue("operator", TokenScope())
    world.services.access.revoke(revoked.token_id)
    return {
        "operator": world.operator,
        "publisher": world.holder("publish"),
        "publisher_elsewhere": world.holder("publish", location="bakery"),
        "publisher_of_another_target": world.caller(world.location_token("publish", target="other")),
        "boot": world.holder("work"),
        "boot_elsewhere": world.holder("work", location="bakery"),
        "worker": world.accepted(),
        "worker_of_another_run": world.caller(_worker_token(world, "run_00000000000000000000000000000099")),
        "nobody": world.caller(),
        "expired": world.caller(_expired_token(world, postgres)),
        "revoked": world.caller(revoked.secret),
    }


def _worker_token(world: Site, run_id: str) -> str:
    return world.services.database.write(
        lambda tx: world.services.access.mint_worker_token(
            tx,
            run_id=run_id,
            claim_id="clm_00000000000000000000000000000099",
            location=LOCATION,
            target=TARGET,
            expires_at=tx.now + timedelta(hours=1),
        )
    )


def _expired_token(world: Site, postgres: PostgresServer) -> str:
    token = world.services.access.issue("operator", TokenScope())
    with psycopg.connect(world.services.settings.database_url, autocommit=True) as connection:
        connection.execute(
            "UPDATE access_tokens SET expires_at = clock_timestamp() WHERE token_id = %s", [token.token_id]
        )
    return token.secret


@pytest.fixture(scope="module")
def address(world: Site) -> Callable[[Operation], str]:
    """The path of an operation with things that exist."""
    spare = world.services.access.issue("operator", TokenScope())
    snapshot_id = world.services.catalog.current(LOCATION, TARGET).snapshot_id
    for backfill_id in (BACKFILL, CANCELLED):
        assert world.operator.post("/v1/backfills", backfill(backfill_id)).status == 201
    parts = {
        "location": LOCATION,
        "target": TARGET,
        "job": "orders",
        "name": "orders%2Fschedule",
        "run_id": RUN,
        "boot_id": BOOT.replace("1", "9"),
        "snapshot_id": snapshot_id,
        "key": "models%2Forders.sql",
        "token_id": spare.token_id,
        "pool": "default",
    }

    def path(operation: Operation) -> str:
        ends = operation.name == "cancel_backfill"
        return operation.path.format_map({**parts, "backfill_id": CANCELLED if ends else BACKFILL})

    return path


def call(caller: Caller, operation: Operation, path: str) -> Answered:
    if operation.body_model is None:
        return caller.send(operation.method, path)
    return caller.json(operation.method, path, {})


def test_every_operation_has_its_row() -> None:
    declared = {operation.name: operation.permission for operation in operations()}
    assert declared == {name: permission for name, (permission, _) in OPERATIONS.items()}


@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.name)
@pytest.mark.parametrize("caller", CALLERS)
def test_a_caller_gets_what_the_table_says(
    callers: Mapping[str, Caller], address: Callable[[Operation], str], operation: Operation, caller: str
) -> None:
    answer = call(callers[caller], operation, address(operation))
    wanted = expected(operation.name, caller)
    if wanted == 200:
        assert answer.status in {200, 422}, answer.text
    else:
        assert answer.status == wanted, answer.text
        code = {401: UNKNOWN.get(caller), 403: "forbidden", 404: "not_found"}[wanted]
        assert answer.body["code"] == code


def test_what_is_out_of_reach_looks_like_what_is_not_there(callers: Mapping[str, Caller]) -> None:
    stranger = callers["publisher_elsewhere"]
    there = stranger.get(f"/v1/runs/{RUN}").body
    missing = stranger.get(f"/v1/runs/{RUN[:-1]}7").body
    for answer in (there, missing):
        del answer["request_id"], answer["instance"]
    assert there == missing


def test_uploads_are_for_the_token_s_own_target(callers: Mapping[str, Caller]) -> None:
    body = {"location": LOCATION, "target": TARGET, "sha256s": ["d" * 64]}
    assert callers["publisher"].post("/v1/snapshots/uploads", body).status == 200
    assert callers["publisher_elsewhere"].post("/v1/snapshots/uploads", body).status == 404
    assert callers["publisher_of_another_target"].post("/v1/snapshots/uploads", body).status == 404


def test_a_list_shows_no_more_than_the_caller_reaches(callers: Mapping[str, Caller]) -> None:
    def shown(caller: str, query: str = "") -> list[str]:
        return [run["run_id"] for run in callers[caller].get(f"/v1/runs{query}").body["items"]]

    assert shown("operator") == shown("publisher") == [RUN]
    assert shown("publisher_elsewhere") == shown("publisher_of_another_target") == []
    assert shown("publisher_elsewhere", f"?location={LOCATION}") == []
    assert shown("publisher_of_another_target", f"?location={LOCATION}&target={TARGET}") == []
    assert shown("publisher", "?location=bakery") == []
    assert shown("publisher", f"?target={TARGET}") == [RUN]
