"""The main paths against the real API: services on a real Postgres, the API behind a real socket."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from chalicelib.access import TokenScope
from chalicelib.bootstrap import Services, build_services
from chalicelib.cloud.provision import provision
from chalicelib.entrypoints.api import build_app
from chalicelib.local.api_server import ApiServer
from chalicelib.projects.bundle import Bundle, SnapshotIndex, write_bundle
from chalicelib.settings import Settings
from tests.api.site import JOB, LOCATION, TARGET, TRIGGER, index
from tests.cli.conftest import Cli
from tests.postgres import StoreAddress

PUBLICATION = "pub_0123456789abcdef"
RUN = "run_0123456789abcdef"
HERE = ["--location", LOCATION, "--target", TARGET]


@pytest.fixture
def services(store: StoreAddress) -> Iterator[Services]:
    settings = Settings.model_validate(
        {"stage": "test", "database_url": store.application_url, "database_connections": 4}
    )
    with mock_aws():
        built = build_services(settings)
        provision(built.aws)
        yield built
        built.close()


@pytest.fixture
def live(cli: Cli, services: Services) -> Iterator[Cli]:
    """In the folder of a running stack, as its operator."""
    ids = itertools.count()
    server = ApiServer(build_app(lambda: services), new_request_id=lambda: f"req_{next(ids):032x}")
    cli.dev_stack(server.bind(), services.access.issue("operator", TokenScope()).secret)
    server.start()
    yield cli
    server.stop()


@pytest.fixture
def published(live: Cli) -> Cli:
    """With one target and one published job."""
    assert live.run("admin", "location", "add", LOCATION).code == 0
    assert live.run("admin", "target", "set", LOCATION, TARGET, "--single-writer").code == 0
    write_bundle(Bundle(index(), {}), live.folder / "bundle")
    found = live.json("publish", "bundle", *HERE, "--id", PUBLICATION)
    assert (found.code, found.document["changed"], found.document["jobs"]) == (0, True, [JOB])
    return live


def other_bundle(folder: Path) -> SnapshotIndex:
    """One node with another content, one new node, and a job that needs both."""
    nodes = {
        "orders": {"kind": "command", "relation": "cafe.main.orders", "drift_key": "d" * 64},
        "extra": {"kind": "command", "relation": None, "drift_key": "e" * 64},
    }
    changed = index(nodes=nodes)
    write_bundle(Bundle(changed, {}), folder)
    return changed


def test_publishing_again_with_the_same_id_gives_the_same_answer(published: Cli) -> None:
    first = published.json("publish", "bundle", *HERE, "--id", PUBLICATION)
    second = published.json("publish", "bundle", *HERE, "--id", PUBLICATION)
    assert first.document == second.document
    assert first.document["publication_id"] == PUBLICATION


def test_check_exits_0_then_3_naming_what_differs(published: Cli) -> None:
    same = published.json("publish", "bundle", "--check", *HERE)
    assert (same.code, same.document["changed"]) == (0, False)
    changed = other_bundle(published.folder / "other")
    differs = published.json("publish", "other", "--check", *HERE)
    assert differs.code == 3
    assert differs.document == {
        "changed": True,
        "snapshot_id": changed.snapshot_id(),
        "current_snapshot_id": index().snapshot_id(),
        "nodes": {"added": ["extra"], "changed": ["orders"], "removed": []},
        "jobs": {"added": [], "changed": [], "removed": []},
    }
    assert "extra" in published.run("publish", "other", "--check", *HERE).out
    assert published.json("jobs", "show", JOB, *HERE).document["snapshot_id"] == index().snapshot_id()


def test_check_against_nothing_published_says_that_all_is_new(live: Cli) -> None:
    live.run("admin", "location", "add", LOCATION)
    live.run("admin", "target", "set", LOCATION, TARGET)
    other_bundle(live.folder / "other")
    found = live.json("publish", "other", "--check", *HERE)
    assert (found.code, found.document["current_snapshot_id"]) == (3, None)
    assert found.document["jobs"]["added"] == [JOB]


def test_an_expected_snapshot_that_is_not_current_is_exit_5(published: Cli) -> None:
    other_bundle(published.folder / "other")
    refused = published.json("publish", "other", *HERE, "--expect-current", "f" * 64)
    assert (refused.code, refused.document["error"]["code"]) == (5, "snapshot_not_current")
    accepted = published.json("publish", "other", *HERE, "--expect-current", index().snapshot_id())
    assert (accepted.code, accepted.document["changed"]) == (0, True)


def test_a_project_is_compiled_and_published_in_one_command(published: Cli) -> None:
    published.project(f'name = "cafe"\nlocation = "{LOCATION}"\njobs = []\n[targets.{TARGET}]\n')
    compiled = published.json("compile", "--out", "made")
    assert compiled.code == 0
    checked = published.json("publish", "--check")
    assert (checked.code, checked.document["jobs"]["removed"]) == (3, [JOB])
    done = published.json("publish")
    assert (done.code, done.document["snapshot_id"]) == (0, compiled.document["snapshot_id"])
    assert done.document["triggers"]["removed"] == 1
    assert published.json("publish", "made", "--check").code == 0
    assert published.json("jobs", "list").document["items"] == []
    assert (published.folder / ".tidemill" / ".gitignore").read_text() == "*\n"


def test_a_run_is_requested_once_explained_and_cancelled(published: Cli) -> None:
    words = ["run", JOB, *HERE, "--id", RUN]
    first, again = published.json(*words), published.json(*words)
    assert (first.document["run"]["run_id"], first.document["reused"]) == (RUN, False)
    assert again.document["reused"] is True
    assert published.json("runs", "why", RUN).document["state"] == "queued"
    assert [one["run_id"] for one in published.json("runs", "list", *HERE).document["items"]] == [RUN]
    assert published.json("runs", "events", RUN).document["items"][0]["kind"] == "queued"
    assert published.json("runs", "nodes", RUN).document["items"] == []
    cancel = ["runs", "cancel", RUN, "--reason", "not needed", "--id", "can_0123456789abcdef"]
    answers = [published.json(*cancel) for _ in range(2)]
    assert answers[0].document["status"] == "cancelled"
    assert answers[0].document == answers[1].document
    late = published.json("runs", "cancel", RUN)
    assert (late.code, late.document["error"]["code"]) == (5, "already_finished")
    waited = published.json("runs", "wait", RUN)
    assert (waited.code, waited.document["state"]) == (1, "cancelled")


def test_a_finished_run_is_run_again_once_and_by_one_way(published: Cli) -> None:
    published.json("run", JOB, *HERE, "--id", RUN)
    early = published.json("runs", "rerun", RUN)
    assert (early.code, early.document["error"]["code"]) == (5, "not_terminal")
    published.json("runs", "cancel", RUN)
    words = ["runs", "rerun", RUN, "--id", "run_of_the_rerun_01"]
    first, again = published.json(*words), published.json(*words)
    assert (first.document["run"]["rerun_of"], first.document["reused"]) == (RUN, False)
    assert again.document == first.document | {"reused": True}
    reused = published.json(*words, "--from-failed")
    assert (reused.code, reused.document["error"]["code"]) == (5, "id_reused")
    current = published.json("runs", "rerun", RUN, "--current", "--id", "run_of_the_rerun_02")
    assert current.document["run"]["snapshot_id"] == index().snapshot_id()
    assert published.json("runs", "rerun", RUN, "--current", "--from-failed").code == 2
    published.json("runs", "cancel", "run_of_the_rerun_03")
    waited = published.run("runs", "rerun", RUN, "--wait", "--timeout", "1")
    assert waited.code == 1
    assert "it goes on" in waited.err


def test_a_resolution_needs_an_outcome_and_a_reason_and_is_refused_while_all_is_well(published: Cli) -> None:
    published.json("run", JOB, *HERE, "--id", RUN)
    for words in ([], ["--outcome", "failed"], ["--reason", "x"], ["--outcome", "lost", "--reason", "x"]):
        assert published.json("runs", "resolve", RUN, *words).code == 2
    refused = published.json("runs", "resolve", RUN, "--outcome", "failed", "--reason", "x")
    assert (refused.code, refused.document["error"]["code"]) == (5, "not_terminal")


def test_an_operator_acts_on_runs_with_the_store_alone(
    cli: Cli, published: Cli, services: Services, store: StoreAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_STAGE", services.settings.stage)
    on_store = ["--store", store.application_url]
    asked = published.json("run", JOB, *HERE, "--id", RUN, *on_store)
    assert (asked.document["run"]["requested_by"], asked.document["reused"]) == ("admin-cli", False)
    assert published.json("run", JOB, *HERE, "--id", RUN, *on_store).document["reused"] is True
    by_api = published.json("runs", "list", *HERE, "--state", "queued").document
    assert published.json("runs", "list", *HERE, "--state", "queued", *on_store).document == by_api
    wrong = published.json("runs", "list", "--state", "sleeping", *on_store)
    assert (wrong.code, wrong.document["error"]["errors"][0]["field"]) == (2, "state")
    refused = published.json("runs", "resolve", RUN, "--outcome", "failed", "--reason", "x", *on_store)
    assert refused.document["error"]["code"] == "not_terminal"
    cancelled = published.json("runs", "cancel", RUN, *on_store).document
    assert (cancelled["status"], cancelled["requested_by"]) == ("cancelled", "admin-cli")
    both = published.json("runs", "list", *on_store, "--server", "http://127.0.0.1:1")
    assert (both.code, "exclude each other" in both.err) == (2, True)
    again = published.json("run", JOB, *HERE, "--wait", "--timeout", "1", *on_store)
    assert again.code == 1


def test_an_unknown_thing_is_exit_2_and_a_weak_token_exit_4(published: Cli) -> None:
    missing = published.json("runs", "show", "run_of_nobody_0000")
    assert (missing.code, missing.document["error"]["code"]) == (2, "not_found")
    assert published.json("run", "nothing", *HERE).code == 2
    issued = published.json("admin", "token", "issue", "--location", LOCATION, "--permission", "publish").document
    (published.folder / "token").write_text(issued["secret"])
    weak = published.json("admin", "location", "list", "--token-file", "token")
    assert (weak.code, weak.document["error"]["code"]) == (4, "forbidden")
    assert issued["secret"] not in weak.err + weak.out
    assert published.json("admin", "token", "revoke", issued["token_id"]).document["revoked"] is True
    revoked = published.json("runs", "list", "--token-file", "token")
    assert (revoked.code, revoked.document["error"]["code"]) == (4, "token_revoked")


def test_triggers_are_listed_switched_and_previewed(published: Cli) -> None:
    listed = published.json("triggers", "list", *HERE).document["items"]
    assert [(one["name"], one["enabled"]) for one in listed] == [(TRIGGER, True)]
    switched = published.json("triggers", "disable", TRIGGER, *HERE)
    assert (switched.code, switched.document["enabled"]) == (0, False)
    assert published.json("triggers", "enable", TRIGGER, *HERE).document["enabled"] is True
    assert published.json("triggers", "show", TRIGGER, *HERE).document["job"] == JOB
    assert published.json("triggers", "ticks", TRIGGER, *HERE).document["items"] == []
    after = ["--after", "2027-01-01T00:00:00Z", "--count", "1"]
    by_server = published.json("triggers", "preview", TRIGGER, *HERE, *after).document
    here = published.json("triggers", "preview", "--cron", "0 3 29 2 *", "--timezone", "UTC", *after).document
    assert by_server == here
    assert here["occurrences"][0]["scheduled_for"] == "2028-02-29T03:00:00.000000Z"


def test_what_is_published_is_simulated_and_agrees_with_the_preview(published: Cli) -> None:
    period = ["--from", "2027-01-01T00:00:00Z", "--to", "2033-01-01T00:00:00Z"]
    found = published.json("simulate", *HERE, *period).document
    previewed = published.json("triggers", "preview", TRIGGER, *HERE, "--after", period[1], "--count", "2").document
    assert (found["source"], found["location"], found["target"], found["ticks"]) == ("published", LOCATION, TARGET, 2)
    names = ("scheduled_for", "local_time", "abbreviation", "zone_change")
    assert [[one[name] for name in names] for one in found["items"]] == [
        [one[name] for name in names] for one in previewed["occurrences"]
    ]
    assert [(one["trigger"], one["job"], one["outcome"]) for one in found["items"]] == [(TRIGGER, JOB, "requested")] * 2
    published.json("triggers", "disable", TRIGGER, *HERE)
    without = published.json("simulate", *HERE, *period)
    assert (without.code, without.document["ticks"]) == (0, 0)
    assert without.document["left_out"] == [{"trigger": TRIGGER, "reason": "is disabled and makes no ticks"}]


def test_of_a_job_with_two_schedules_one_asks_and_the_other_is_covered(published: Cli) -> None:
    job = index().jobs[JOB].model_dump(mode="json")
    day = {"type": "date", "default_from": "scheduled_for", "maps_to": "var:day"}
    spec = {"cron": "0 3 * * *", "timezone": "UTC"}
    twice = [{"name": f"{JOB}/{name}", "kind": "schedule", "spec": spec} for name in ("early", "late")]
    changed = index(jobs={JOB: {**job, "inputs": {"day": day}, "triggers": twice}})
    write_bundle(Bundle(changed, {}), published.folder / "twice")
    assert published.json("publish", "twice", *HERE).code == 0
    period = ["--from", "2027-01-01T00:00:00Z", "--to", "2027-01-02T00:00:00Z"]
    by_server = published.json("simulate", *HERE, *period).document
    assert [(one["trigger"], one["covered_by"]) for one in by_server["items"]] == [
        (f"{JOB}/early", None),
        (f"{JOB}/late", f"{JOB}/early"),
    ]
    by_bundle = published.json("simulate", "twice", *HERE, *period).document
    assert {**by_bundle, "source": "published"} == by_server


def test_a_location_is_disabled_and_listed_by_api_and_by_store(published: Cli, store: StoreAddress) -> None:
    assert published.json("admin", "location", "disable", LOCATION).document["disabled"] is True
    by_api = published.json("admin", "location", "list").document
    by_store = published.json("admin", "location", "list", "--store", store.application_url).document
    assert by_api == by_store
    assert by_store["items"][0]["disabled"] is True


def test_the_store_and_its_aws_are_enough_to_administer(
    cli: Cli, services: Services, store: StoreAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_STAGE", services.settings.stage)
    on_store = ["--store", store.application_url]
    assert cli.json("admin", "store", "check", *on_store).document["ok"] is True
    assert cli.json("admin", "store", "init", "--store", store.superuser_url).document["created"] is False
    assert cli.json("admin", "location", "add", "roastery", *on_store).document["added"] is True
    assert cli.json("admin", "location", "add", "roastery", *on_store).document["added"] is False
    words = ["admin", "target", "set", "roastery", "prod", "--env", "A=b", "--settle", "5", *on_store]
    found = cli.json(*words).document
    assert (found["settle_seconds"], found["environment"]) == (5, {"A": "b"})
    refused = cli.json("admin", "target", "set", "roastery", "prod", "--case-rule", "sideways", *on_store)
    assert (refused.code, refused.document["error"]["errors"][0]["field"]) == (2, "case_rule")
    issued = cli.json("admin", "token", "issue", "--operator", "--days", "1", *on_store).document
    assert services.access.authenticate(issued["secret"]).kind == "operator"
    listed = cli.json("admin", "token", "list", *on_store)
    assert issued["token_id"] in listed.out
    assert issued["secret"] not in listed.out
    assert cli.json("admin", "token", "revoke", issued["token_id"], *on_store).document["revoked"] is True
    assert cli.json("admin", "reshard", "3", *on_store).document == {"shards": [0, 1, 2]}
    assert services.scheduler.shards() == [0, 1, 2]
    assert cli.json("admin", "reshard", "0", *on_store).code == 2


def test_a_secret_goes_to_a_file_when_asked(published: Cli) -> None:
    words = ["admin", "token", "issue", "--location", LOCATION, "--permission", "work", "--json-output", "issued.json"]
    assert published.run(*words).code == 0
    issued: dict[str, Any] = json.loads((published.folder / "issued.json").read_text())
    assert issued["secret"].startswith("tml_")


def test_doctor_sees_a_working_server(published: Cli) -> None:
    found = published.json("doctor")
    checks = {one["check"]: one["detail"] for one in found.document["checks"]}
    assert "release" in checks["server"]


# --- pools


def test_pools_are_listed_and_set_over_the_api(published: Cli) -> None:
    made = published.json("admin", "pool", "set", "warehouse", "6")
    assert (made.code, made.document["limit"], made.document["free"]) == (0, 6, 6)
    changed = published.run("admin", "pool", "set", "warehouse", "4")
    assert changed.code == 0
    listed = published.json("pools", "list").document["items"]
    assert [(pool["pool"], pool["limit"]) for pool in listed] == [("default", 10), ("warehouse", 4)]
    shown = published.run("pools", "list").out.splitlines()
    assert shown[0].split() == ["pool", "limit", "used", "free", "holders"]
    assert shown[2].split() == ["warehouse", "4", "0", "4", "-"]


def test_the_limit_of_a_worker_kind_is_refused_with_its_setting(published: Cli) -> None:
    ended = published.run("admin", "pool", "set", "worker:lambda", "3")
    assert (ended.code, ended.out) == (2, "")
    assert "TIDEMILL_LAMBDA_CONCURRENCY" in ended.err


def test_pools_are_set_on_the_store(live: Cli, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_STAGE", services.settings.stage)
    url = services.settings.database_url
    for limit in ("3", "5", "5"):
        ended = live.json("admin", "pool", "set", "warehouse", limit, "--store", url)
        assert (ended.code, ended.document["limit"]) == (0, int(limit))
    assert live.run("admin", "pool", "set", "warehouse", "1000001", "--store", url).code == 2
