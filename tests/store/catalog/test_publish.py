from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import psycopg
import pytest
from psycopg import sql

from chalicelib.catalog import CatalogService, PublishRequest, PublishResult
from chalicelib.database import Database
from chalicelib.kernel.canonical import sha256_text
from chalicelib.kernel.errors import (
    IdReused,
    InvalidRequest,
    InvalidSchedule,
    LocationDisabled,
    NeverFits,
    NotFound,
    SnapshotNotCurrent,
    TidemillError,
    UnknownDocument,
)
from chalicelib.kernel.limits import INLINE_DOCUMENT_BYTES
from chalicelib.locations import LocationService, TargetSettings
from chalicelib.schedules.service import ScheduleService
from tests.doubles import MemoryObjects, lowering_over
from tests.snapshots import index_of, job, publish_request, schedule
from tests.store.catalog.conftest import SETTINGS

ORDERS = job("orders", relations=["main.orders"], triggers=[schedule("orders/schedule")])
MENU = job("menu", relations=["main.menu"])
LARGE = "x" * (INLINE_DOCUMENT_BYTES + 1)


@pytest.fixture
def publish(catalog: CatalogService) -> Callable[[PublishRequest], PublishResult]:
    return lambda request: catalog.publish("cafe", "prod", request, "operator:tok_1")


def counts(owner_url: str) -> dict[str, int]:
    """How many rows each table has."""
    with psycopg.connect(owner_url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {
            name: connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))).fetchall()[0][0]
            for (name,) in tables
        }


def state(owner_url: str, name: str) -> dict[str, Any]:
    with psycopg.connect(owner_url) as connection:
        row = connection.execute(
            "SELECT t.spec_hash, s.enabled, s.shard, s.cursor_json FROM triggers t JOIN trigger_state s USING (trigger_id) "
            "WHERE t.name = %s",
            [name],
        ).fetchone()
    assert row is not None
    return dict(zip(("spec_hash", "enabled", "shard", "cursor"), row, strict=True))


# ------------------------------------------------------------------ what a publication does


def test_first_publication_makes_everything_current(
    publish: Callable[[PublishRequest], PublishResult], catalog: CatalogService, schedules: ScheduleService
) -> None:
    index = index_of([ORDERS, MENU], documents={"graph": "{}"})
    result = publish(publish_request(index, documents=["{}"]))
    assert result.changed
    assert result.current
    assert result.jobs == ("menu", "orders")
    assert result.triggers.model_dump() == {"added": 1, "changed": 0, "kept": 0, "removed": 0}
    assert result.warnings == ()
    shown = catalog.current("cafe", "prod")
    assert shown.snapshot_id == index.snapshot_id()
    assert shown.published_by == "operator:tok_1"
    assert (shown.git_revision, shown.git_dirty, shown.git_authors) == ("abc", True, ("ada@example.org",))
    assert [summary.job for summary in catalog.jobs("cafe", "prod")] == ["menu", "orders"]
    assert catalog.job("cafe", "prod", "orders").definition == index.jobs["orders"]
    assert schedules.trigger("cafe", "prod", "orders/schedule").enabled


def test_next_publication_replaces_jobs_and_merges_triggers(
    publish: Callable[[PublishRequest], PublishResult], catalog: CatalogService, owner_url: str
) -> None:
    kept, edited = schedule("orders/a"), schedule("orders/b", cron="0 5 * * *")
    publish(publish_request(index_of([job("orders", triggers=[kept, edited, schedule("orders/c")]), MENU]), 1))
    before = {name: state(owner_url, name) for name in ("orders/a", "orders/b")}
    changed = schedule("orders/b", cron="0 7 * * *")
    result = publish(publish_request(index_of([job("orders", triggers=[kept, changed, schedule("orders/d")])]), 2))
    assert result.triggers.model_dump() == {"added": 1, "changed": 1, "kept": 1, "removed": 1}
    assert [summary.job for summary in catalog.jobs("cafe", "prod")] == ["orders"]
    assert state(owner_url, "orders/a") == before["orders/a"]
    assert state(owner_url, "orders/b")["spec_hash"] != before["orders/b"]["spec_hash"]


def test_operators_choice_survives_a_publication(
    publish: Callable[[PublishRequest], PublishResult], schedules: ScheduleService
) -> None:
    publish(publish_request(index_of([ORDERS]), 1))
    schedules.set_enabled("cafe", "prod", "orders/schedule", enabled=False, request_id="req_0000000000000001")
    publish(publish_request(index_of([ORDERS, MENU]), 2))
    assert not schedules.trigger("cafe", "prod", "orders/schedule").enabled


def test_queued_runs_keep_the_definition_of_their_snapshot(
    publish: Callable[[PublishRequest], PublishResult], catalog: CatalogService, owner_url: str
) -> None:
    first = index_of([ORDERS])
    publish(publish_request(first, 1))
    publish(publish_request(index_of([{**ORDERS, "timeout_seconds": 700}]), 2))
    assert catalog.job("cafe", "prod", "orders").definition.timeout_seconds == 700
    with psycopg.connect(owner_url) as connection:
        row = connection.execute(
            "SELECT definition ->> 'timeout_seconds' FROM snapshot_jobs WHERE snapshot_id = %s", [first.snapshot_id()]
        ).fetchone()
    assert row == ("600",)


def test_job_and_its_trigger_share_a_shard(publish: Callable[[PublishRequest], PublishResult], owner_url: str) -> None:
    jobs = [job(f"job_{number}", triggers=[schedule(f"job_{number}/schedule")]) for number in range(20)]
    with psycopg.connect(owner_url) as connection:
        connection.execute("INSERT INTO scheduler_shards SELECT n, 0, '', 0, '' FROM generate_series(1, 3) AS n")
    publish(publish_request(index_of(jobs)))
    with psycopg.connect(owner_url) as connection:
        rows = connection.execute(
            "SELECT j.shard, s.shard FROM jobs j JOIN triggers t USING (location, target, job) "
            "JOIN trigger_state s USING (trigger_id)"
        ).fetchall()
    assert len(rows) == 20
    assert all(ours == theirs for ours, theirs in rows)
    assert {shard for shard, _ in rows} == {0, 1, 2, 3}


def test_number_of_statements_does_not_grow_with_the_snapshot(database: Database, catalog: CatalogService) -> None:
    def statements(number: int, jobs: int) -> int:
        before = database.statements
        many = [job(f"job_{n}", triggers=[schedule(f"job_{n}/schedule")]) for n in range(jobs)]
        catalog.publish("cafe", "prod", publish_request(index_of(many), number), "tester")
        return database.statements - before

    statements(1, 1)
    assert statements(2, 2) == statements(3, 60)


# ------------------------------------------------------------------ repeating


def test_same_publication_id_gives_the_same_answer(
    publish: Callable[[PublishRequest], PublishResult], owner_url: str
) -> None:
    request = publish_request(index_of([ORDERS]))
    first = publish(request)
    publish(publish_request(index_of([MENU]), 2))
    rows = counts(owner_url)
    assert publish(request) == first
    assert counts(owner_url) == rows


def test_repeat_is_answered_even_when_it_would_be_refused_now(
    publish: Callable[[PublishRequest], PublishResult], locations: LocationService
) -> None:
    request = publish_request(index_of([ORDERS]))
    first = publish(request)
    locations.set_disabled("cafe", disabled=True)
    assert publish(request) == first


def test_same_snapshot_again_changes_nothing(
    publish: Callable[[PublishRequest], PublishResult], owner_url: str
) -> None:
    publish(publish_request(index_of([ORDERS]), 1))
    before, rows = state(owner_url, "orders/schedule"), counts(owner_url)
    again = publish(publish_request(index_of([ORDERS]), 2))
    assert not again.changed
    assert again.triggers.model_dump() == {"added": 0, "changed": 0, "kept": 1, "removed": 0}
    assert state(owner_url, "orders/schedule") == before
    assert counts(owner_url) == {**rows, "publications": 2}


def test_publishing_an_earlier_snapshot_again_goes_back_to_it(
    publish: Callable[[PublishRequest], PublishResult], catalog: CatalogService
) -> None:
    first = index_of([ORDERS, MENU])
    publish(publish_request(first, 1))
    publish(publish_request(index_of([MENU]), 2))
    assert publish(publish_request(first, 3)).changed
    assert catalog.current("cafe", "prod").snapshot_id == first.snapshot_id()
    assert len(catalog.jobs("cafe", "prod")) == 2


def test_publication_id_of_something_else_is_refused(
    publish: Callable[[PublishRequest], PublishResult], catalog: CatalogService, locations: LocationService
) -> None:
    publish(publish_request(index_of([ORDERS])))
    with pytest.raises(IdReused, match="publication_id"):
        publish(publish_request(index_of([MENU])))
    locations.set_target("cafe", "dev", TargetSettings())
    with pytest.raises(IdReused):
        catalog.publish("cafe", "dev", publish_request(index_of([ORDERS])), "tester")


def together(*calls: Callable[[], PublishResult]) -> list[PublishResult]:
    barrier = Barrier(len(calls))

    def run(call: Callable[[], PublishResult]) -> PublishResult:
        barrier.wait(10)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(30) for future in [pool.submit(run, call) for call in calls]]


def test_same_publication_from_two_threads_has_one_effect(
    publish: Callable[[PublishRequest], PublishResult], owner_url: str
) -> None:
    request = publish_request(index_of([ORDERS, MENU]))
    first, second = together(lambda: publish(request), lambda: publish(request))
    assert first == second
    assert first.changed
    found = counts(owner_url)
    assert (found["publications"], found["snapshots"], found["jobs"], found["triggers"]) == (1, 1, 2, 1)


def test_racing_publications_leave_one_whole_snapshot(
    publish: Callable[[PublishRequest], PublishResult], catalog: CatalogService, schedules: ScheduleService
) -> None:
    mine = index_of([job("mine", triggers=[schedule("mine/schedule")])])
    theirs = index_of([job("theirs", triggers=[schedule("theirs/schedule")])])
    results = together(lambda: publish(publish_request(mine, 1)), lambda: publish(publish_request(theirs, 2)))
    assert all(result.changed for result in results)
    name = "mine" if catalog.current("cafe", "prod").snapshot_id == mine.snapshot_id() else "theirs"
    assert [summary.job for summary in catalog.jobs("cafe", "prod")] == [name]
    assert [trigger.name for trigger in schedules.triggers("cafe", "prod")] == [f"{name}/schedule"]


def test_same_new_snapshot_to_two_targets_at_once(
    catalog: CatalogService, locations: LocationService, owner_url: str
) -> None:
    locations.set_target("cafe", "dev", TargetSettings())
    index = index_of([ORDERS])
    results = together(
        lambda: catalog.publish("cafe", "prod", publish_request(index, 1), "tester"),
        lambda: catalog.publish("cafe", "dev", publish_request(index, 2), "tester"),
    )
    assert all(result.changed for result in results)
    assert {(place.location, place.target) for place in catalog.places(index.snapshot_id())} == {
        ("cafe", "prod"),
        ("cafe", "dev"),
    }
    assert counts(owner_url)["snapshots"] == 1


# ------------------------------------------------------------------ conditional


def test_expected_snapshot_is_checked(publish: Callable[[PublishRequest], PublishResult], owner_url: str) -> None:
    first, second = index_of([ORDERS]), index_of([MENU])
    with pytest.raises(SnapshotNotCurrent, match="no snapshot is current"):
        publish(publish_request(first, 1, expect_current="a" * 64))
    publish(publish_request(first, 2))
    rows = counts(owner_url)
    with pytest.raises(SnapshotNotCurrent):
        publish(publish_request(second, 3, expect_current=second.snapshot_id()))
    assert counts(owner_url) == rows
    assert publish(publish_request(second, 4, expect_current=first.snapshot_id())).changed


# ------------------------------------------------------------------ documents


def test_large_inline_document_lives_in_the_object_store(
    publish: Callable[[PublishRequest], PublishResult], catalog: CatalogService, objects: MemoryObjects
) -> None:
    index = index_of([ORDERS], documents={"graph": LARGE, "small": "s" * INLINE_DOCUMENT_BYTES})
    publish(publish_request(index, documents=[LARGE, "s" * INLINE_DOCUMENT_BYTES]))
    assert objects.contents == {f"snapshots/{sha256_text(LARGE)}": LARGE.encode()}
    large, small = (catalog.document(index.snapshot_id(), key) for key in ("graph", "small"))
    assert (large.text, large.url) == (None, f"memory:get/snapshots/{sha256_text(LARGE)}")
    assert (small.text, small.url) == ("s" * INLINE_DOCUMENT_BYTES, None)


def test_document_that_a_text_column_cannot_hold_lives_in_the_object_store(
    publish: Callable[[PublishRequest], PublishResult], objects: MemoryObjects
) -> None:
    publish(publish_request(index_of([ORDERS], documents={"graph": "a\x00b"}), documents=["a\x00b"]))
    assert objects.contents == {f"snapshots/{sha256_text('a' + chr(0) + 'b')}": b"a\x00b"}


def test_uploaded_documents_and_index_are_used(
    catalog: CatalogService, publish: Callable[[PublishRequest], PublishResult], objects: MemoryObjects
) -> None:
    index = index_of([ORDERS], documents={"graph": LARGE})
    wanted = [sha256_text(LARGE), index.snapshot_id()]
    uploads = catalog.uploads("cafe", "prod", wanted)
    assert [upload.url for upload in uploads] == [f"memory:put/snapshots/{sha256}" for sha256 in wanted]
    objects.put(f"snapshots/{wanted[0]}", LARGE.encode())
    objects.put(f"snapshots/{wanted[1]}", index.canonical().encode())
    assert publish(publish_request(index, uploaded=True)).changed
    assert catalog.uploads("cafe", "prod", wanted)[0].url is None


def test_known_documents_are_neither_sent_nor_read_again(
    publish: Callable[[PublishRequest], PublishResult], catalog: CatalogService, objects: MemoryObjects
) -> None:
    documents = {"graph": LARGE, "small": "{}"}
    publish(publish_request(index_of([ORDERS], documents=documents), 1, documents=[LARGE, "{}"]))
    objects.reads.clear()
    second = index_of([MENU], documents=documents)
    publish(publish_request(second, 2))
    assert objects.reads == []
    assert catalog.document(second.snapshot_id(), "small").text == "{}"
    assert catalog.document(second.snapshot_id(), "graph").url is not None


WRONG_DOCUMENTS: list[tuple[str, dict[str, str], dict[str, str], str]] = [
    ("missing", {"graph": "{}"}, {}, "documents.graph"),
    ("inline differs", {"graph": "{}"}, {sha256_text("{}"): "[]"}, "documents.graph"),
    ("not listed", {}, {sha256_text("{}"): "{}"}, f"documents.{sha256_text('{}')}"),
]


@pytest.mark.parametrize(
    ("documents", "sent", "field"), [w[1:] for w in WRONG_DOCUMENTS], ids=[w[0] for w in WRONG_DOCUMENTS]
)
def test_wrong_documents_are_refused_by_name(
    publish: Callable[[PublishRequest], PublishResult],
    owner_url: str,
    documents: dict[str, str],
    sent: dict[str, str],
    field: str,
) -> None:
    rows = counts(owner_url)
    request = publish_request(index_of([ORDERS], documents=documents)).model_copy(update={"documents": sent})
    with pytest.raises(UnknownDocument) as refusal:
        publish(request)
    assert [wrong.field for wrong in refusal.value.fields] == [field]
    assert counts(owner_url) == rows


def test_upload_that_differs_from_its_hash_is_refused_and_may_be_sent_again(
    publish: Callable[[PublishRequest], PublishResult], catalog: CatalogService, objects: MemoryObjects, owner_url: str
) -> None:
    sha256 = sha256_text(LARGE)
    objects.put(f"snapshots/{sha256}", b"half of it")
    request = publish_request(index_of([ORDERS], documents={"graph": LARGE}))
    rows = counts(owner_url)
    with pytest.raises(UnknownDocument, match="graph"):
        publish(request)
    assert counts(owner_url) == rows
    assert catalog.uploads("cafe", "prod", [sha256])[0].url is not None
    objects.put(f"snapshots/{sha256}", LARGE.encode())
    assert publish(request).changed


def test_document_of_another_size_is_refused(publish: Callable[[PublishRequest], PublishResult]) -> None:
    listed = [{"key": "graph", "sha256": sha256_text("{}"), "size": 3}]
    with pytest.raises(UnknownDocument, match="2 bytes, not 3"):
        publish(
            publish_request(
                index_of([ORDERS]).model_validate({**index_of([ORDERS]).model_dump(), "documents": listed}),
                documents=["{}"],
            )
        )


def test_snapshot_id_must_be_the_digest_of_the_index(publish: Callable[[PublishRequest], PublishResult]) -> None:
    with pytest.raises(UnknownDocument, match="snapshot_id"):
        publish(publish_request(index_of([ORDERS])).model_copy(update={"snapshot_id": "c" * 64}))


def test_uploaded_index_must_be_there_and_well_formed(
    publish: Callable[[PublishRequest], PublishResult], objects: MemoryObjects
) -> None:
    request = publish_request(index_of([ORDERS]), uploaded=True)
    with pytest.raises(UnknownDocument, match="index"):
        publish(request)
    objects.put(f"snapshots/{request.snapshot_id}", b'{"project": 3}')
    with pytest.raises(InvalidRequest) as refusal:
        publish(request)
    assert "index.project" in [wrong.field for wrong in refusal.value.fields]


# ------------------------------------------------------------------ pools


def test_a_pool_that_is_not_there_is_added_once(
    publish: Callable[[PublishRequest], PublishResult], owner_url: str
) -> None:
    wanted = index_of([job("orders", pools=[{"name": "heavy", "weight": 10}])])
    result = publish(publish_request(wanted, 1))
    assert [text for text in result.warnings if text.startswith("pools.heavy")] == [
        "pools.heavy: is new, with a limit of 10; change it with `tidemill admin pool set heavy LIMIT`"
    ]
    with psycopg.connect(owner_url) as connection:
        connection.execute("UPDATE pools SET slot_limit = 12 WHERE pool = 'heavy'")
    heavier = index_of([job("orders", pools=[{"name": "heavy", "weight": 12}])])
    assert publish(publish_request(heavier, 2)).warnings == ()
    with psycopg.connect(owner_url) as connection:
        found = connection.execute("SELECT pool, slot_limit FROM pools ORDER BY pool").fetchall()
    assert found == [("default", 10), ("heavy", 12)]


def test_a_weight_above_the_limit_names_the_field_and_the_way_out(
    publish: Callable[[PublishRequest], PublishResult],
) -> None:
    """BR-091."""
    with pytest.raises(NeverFits) as refusal:
        publish(publish_request(index_of([job("orders", pools=[{"name": "default", "weight": 11}])]), 1))
    (wrong,) = refusal.value.fields
    assert (wrong.field, wrong.code) == ("jobs.orders.pools.default", "never_fits")
    assert "weight 11 is more than the pool's limit of 10" in wrong.message
    assert "tidemill admin pool set default 11" in wrong.message


# ------------------------------------------------------------------ bad declarations leave no trace (S1)

BAD: list[tuple[str, dict[str, Any], type[TidemillError], str]] = [
    ("zone", job("orders", triggers=[schedule("orders/schedule", timezone="Europe/Brusels")]), InvalidSchedule,
     "jobs.orders.triggers.orders/schedule.timezone"),
    ("never fires", job("orders", triggers=[schedule("orders/schedule", cron="0 0 30 2 *")]), InvalidSchedule,
     "jobs.orders.triggers.orders/schedule.day_of_month"),
    ("no zone", job("orders", triggers=[{"name": "orders/schedule", "kind": "schedule", "spec": {"cron": "* * * * *"}}]),
     InvalidSchedule, "jobs.orders.triggers.orders/schedule.timezone"),
    ("pool twice", job("orders", pools=[{"name": "heavy"}, {"name": "heavy"}]), InvalidRequest, "jobs.orders.pools.heavy"),
    ("heavier than a new pool", job("orders", pools=[{"name": "heavy", "weight": 11}]), NeverFits, "jobs.orders.pools.heavy"),
    ("heavy", job("orders", pools=[{"name": "default", "weight": 11}]), NeverFits, "jobs.orders.pools.default"),
    ("unknown node", job("orders", nodes=["ghost"]), InvalidRequest, "jobs.orders.nodes"),
    ("timeout", job("orders", worker="lambda", timeout_seconds=841), InvalidRequest, "jobs.orders.timeout_seconds"),
    ("foreign name", job("orders", triggers=[schedule("menu/schedule")]), InvalidRequest,
     "jobs.orders.triggers.menu/schedule"),
    ("name twice", job("orders", triggers=[schedule("orders/a"), schedule("orders/a")]), InvalidRequest,
     "jobs.orders.triggers.orders/a"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "error", "field"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_declaration_leaves_no_trace(
    publish: Callable[[PublishRequest], PublishResult],
    owner_url: str,
    bad: dict[str, Any],
    error: type[TidemillError],
    field: str,
) -> None:
    publish(publish_request(index_of([ORDERS]), 1))
    rows, before = counts(owner_url), state(owner_url, "orders/schedule")
    with pytest.raises(error) as refusal:
        publish(publish_request(index_of([bad, MENU], documents={"graph": LARGE}), 2, documents=[LARGE]))
    assert field in [wrong.field for wrong in refusal.value.fields]
    assert field in str(refusal.value)
    assert counts(owner_url) == rows
    assert state(owner_url, "orders/schedule") == before


def test_refused_declaration_puts_no_document_into_the_object_store(
    publish: Callable[[PublishRequest], PublishResult], objects: MemoryObjects
) -> None:
    with pytest.raises(InvalidRequest):
        publish(
            publish_request(index_of([job("orders", nodes=["ghost"])], documents={"graph": LARGE}), documents=[LARGE])
        )
    assert objects.contents == {}


def test_job_key_differs_from_its_name(publish: Callable[[PublishRequest], PublishResult]) -> None:
    document = index_of([ORDERS]).model_dump()
    document["jobs"] = {"other": document["jobs"]["orders"]}
    with pytest.raises(InvalidRequest, match=r"jobs\.other\.job"):
        publish(publish_request(index_of([]).model_validate(document)))


def test_worker_kind_without_places_never_fits(
    database: Database, objects: MemoryObjects, schedules: ScheduleService, locations: LocationService
) -> None:
    none = SETTINGS.model_copy(update={"lambda_concurrency": 0})
    catalog = CatalogService(database, lowering_over(database), objects, schedules, none)
    with pytest.raises(NeverFits, match=r"jobs\.orders\.worker"):
        catalog.publish("cafe", "prod", publish_request(index_of([job("orders", worker="lambda")])), "tester")


def test_failure_of_the_trigger_keeper_rolls_everything_back(
    database: Database, objects: MemoryObjects, locations: LocationService, owner_url: str
) -> None:
    class Broken:
        def merge(self, *_: object) -> Any:
            raise InvalidSchedule("the keeper refuses")

    rows = counts(owner_url)
    with pytest.raises(InvalidSchedule):
        CatalogService(database, lowering_over(database), objects, Broken(), SETTINGS).publish(
            "cafe", "prod", publish_request(index_of([ORDERS])), "tester"
        )
    assert counts(owner_url) == rows


def test_target_that_is_not_set_names_the_command(catalog: CatalogService) -> None:
    for location, target in (("cafe", "dev"), ("bar", "prod")):
        with pytest.raises(NotFound, match=f"tidemill admin target set {location} {target}"):
            catalog.publish(location, target, publish_request(index_of([ORDERS])), "tester")
        with pytest.raises(NotFound):
            catalog.uploads(location, target, ["a" * 64])


def test_disabled_location_takes_no_publication(
    publish: Callable[[PublishRequest], PublishResult], locations: LocationService, owner_url: str
) -> None:
    locations.set_disabled("cafe", disabled=True)
    rows = counts(owner_url)
    with pytest.raises(LocationDisabled, match="cafe"):
        publish(publish_request(index_of([ORDERS])))
    assert counts(owner_url) == rows


def test_relations_folded_otherwise_than_the_target_are_refused(
    publish: Callable[[PublishRequest], PublishResult],
) -> None:
    with pytest.raises(InvalidRequest, match="--case-rule upper"):
        publish(publish_request(index_of([ORDERS], case_rule="upper")))
    assert publish(publish_request(index_of([job("orders")], case_rule="upper"))).changed


# ------------------------------------------------------------------ warnings


def test_sensors_are_stored_and_said_to_sleep(
    publish: Callable[[PublishRequest], PublishResult], schedules: ScheduleService
) -> None:
    sensor = {"name": "orders/source", "kind": "source", "spec": {"sources": ["raw.orders"]}}
    result = publish(publish_request(index_of([job("orders", triggers=[sensor])])))
    assert [warning.partition(";")[0] for warning in result.warnings] == ["orders/source: stored"]
    assert schedules.trigger("cafe", "prod", "orders/source").kind == "source"


def test_warning_about_a_fixed_offset_names_the_trigger(publish: Callable[[PublishRequest], PublishResult]) -> None:
    result = publish(publish_request(index_of([job("orders", triggers=[schedule("orders/schedule", timezone="EST")])])))
    assert len(result.warnings) == 1
    assert result.warnings[0].startswith("jobs.orders.triggers.orders/schedule.timezone: ")


def test_relation_written_from_two_warehouses_over_one_connection_is_told(
    catalog: CatalogService, locations: LocationService
) -> None:
    for target, warehouse in (("dev", "other"), ("twin", "cafe/prod"), ("far", None)):
        locations.set_target("cafe", target, TargetSettings(warehouse=warehouse))
    shared = index_of([job("orders", relations=["main.orders", "main.menu", "main.mine"])])
    theirs = index_of([job("theirs", relations=["main.orders", "main.menu"])])

    def publish_to(target: str, number: int, fingerprint: str) -> PublishResult:
        index = shared if target == "prod" else theirs
        request = publish_request(index, number, connection_fingerprint=fingerprint)
        return catalog.publish("cafe", target, request, "tester")

    for number, (target, fingerprint) in enumerate([("dev", "same"), ("twin", "same"), ("far", "else")]):
        assert publish_to(target, number, fingerprint).warnings == (
            () if target != "twin" else publish_to("twin", 1, "same").warnings
        )
    warnings = publish_to("prod", 9, "same").warnings
    assert len(warnings) == 1
    assert warnings[0].startswith("relation_shared: main.menu and 1 more: jobs of cafe/dev ")
