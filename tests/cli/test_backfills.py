"""``tidemill backfill`` against the real API."""

from __future__ import annotations

import pytest

from chalicelib.bootstrap import Services
from tests.api.site import JOB
from tests.cli.conftest import Cli
from tests.cli.test_against_the_api import HERE, live, published, services

__all__ = ["live", "published", "services"]

BACKFILL = "bkf_0123456789abcdef"
RANGE = ["--over", "occurrences", "--from", "2024-01-01", "--to", "2025-01-01"]
START = ["backfill", "start", JOB, *RANGE, *HERE]


def test_a_dry_run_shows_the_items_and_starts_nothing(published: Cli) -> None:
    found = published.run(*START, "--dry-run")
    assert found.code == 0
    assert "2024-02-29T03:00:00.000000Z" in found.out
    assert "1 items of orders (zone UTC); nothing was started" in found.out
    assert published.json("backfill", "list", *HERE).document["items"] == []


def test_starting_prints_the_id_first_and_a_repeat_with_it_changes_nothing(published: Cli) -> None:
    first = published.json(*START, "--id", BACKFILL, "--max-parallel", "3")
    assert f"repeat with --id {BACKFILL}" in first.err
    assert (first.document["backfill_id"], first.document["max_parallel"], first.document["items"]) == (BACKFILL, 3, 1)
    again = published.json(*START, "--id", BACKFILL, "--max-parallel", "3")
    assert (again.code, again.document) == (0, first.document)
    other = published.run(*START, "--id", BACKFILL, "--max-parallel", "4")
    assert other.code == 5


def test_showing_lists_its_runs_and_what_it_waits_for(published: Cli, services: Services) -> None:
    published.run(*START, "--id", BACKFILL)
    services.scheduler.run_pass(0)
    shown = published.json("backfill", "show", BACKFILL).document
    assert (shown["counts"], shown["waiting"]) == ({"claimed": 1}, 0)
    assert [one["item"] for one in shown["begun"]] == ["2024-02-29T03:00:00.000000Z"]
    text = published.run("backfill", "show", BACKFILL).out
    assert shown["begun"][0]["run_id"] in text
    published.run(
        "backfill",
        "start",
        JOB,
        "--over",
        "occurrences",
        "--from",
        "2020-01-01",
        "--to",
        "2021-01-01",
        *HERE,
        "--id",
        BACKFILL[::-1],
    )
    assert "job_concurrency" in published.run("backfill", "show", BACKFILL[::-1]).out


def test_pausing_resuming_and_cancelling(published: Cli) -> None:
    published.run(*START, "--id", BACKFILL)
    assert published.json("backfill", "pause", BACKFILL).document["state"] == "paused"
    assert (
        published.json("backfill", "list", *HERE, "--state", "paused").document["items"][0]["backfill_id"] == BACKFILL
    )
    assert published.json("backfill", "resume", BACKFILL).document["state"] == "active"
    assert published.json("backfill", "cancel", BACKFILL).document["state"] == "cancelled"
    assert published.run("backfill", "resume", BACKFILL).code == 5


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--over", "days", "--from", "2024-01-01", "--to", "2025-01-01"], 2, "days"),
        (["--over", "occurrences", "--from", "2024-01-01"], 2, "--to"),
        (["--over", "occurrences", "--from", "2024-01-01", "--to", "2024-01-02"], 2, "no occurrence"),
        ([*RANGE, "--input", "day"], 2, "NAME=VALUE"),
        ([*RANGE, "--input", "day=1"], 2, "takes no such input"),
        ([*RANGE, "--step", "day"], 2, "belongs to over=partitions"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_starts(published: Cli, words: list[str], code: int, said: str) -> None:
    found = published.run("backfill", "start", JOB, *words, *HERE)
    assert (found.code, said in found.err) == (code, True), found.err
    assert published.json("backfill", "list", *HERE).document["items"] == []


def test_a_backfill_that_is_not_there(live: Cli) -> None:
    assert live.run("backfill", "show", BACKFILL).code == 2


def test_store_check_says_when_retention_last_finished(live: Cli, services: Services, store_url: str) -> None:
    check = ["admin", "store", "check", "--store", store_url]
    assert live.json(*check).document["retention_finished_at"] is None
    services.scheduler.visit(0, "maintenance")
    assert live.json(*check).document["retention_finished_at"].endswith("Z")
    assert "retention last finished: 20" in live.run(*check).out
