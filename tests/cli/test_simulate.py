"""``simulate`` on what lies in a folder: no server is asked."""

from __future__ import annotations

import sys

import pytest

from chalicelib.projects.bundle import Bundle, write_bundle
from tests.api.site import index
from tests.cli.conftest import Cli
from tests.scripted_server import ScriptedServer

JOBS = """
from tidemill import Command, Job, Schedule

orders = Job(
    key="orders",
    build=Command(argv=["true"]),
    writes=[],
    schedule=Schedule(cron="30 2 * * *", timezone="America/New_York"),
)
stock = Job(
    key="stock",
    build=Command(argv=["true"]),
    writes=[],
    schedule=[
        Schedule(name="hourly", cron="0 * * * *", timezone="UTC"),
        Schedule(name="morning", cron="0 7 * * *", timezone="UTC"),
        Schedule(name="off", cron="* * * * *", timezone="UTC", enabled=False),
    ],
)
"""
DAY_OF_CHANGE = ("--from", "2026-03-08T06:00:00Z", "--to", "2026-03-08T09:00:00Z")


@pytest.fixture
def local(cli: Cli) -> Cli:
    """In the folder of a project with schedules, without a server."""
    cli.project('name = "cafe"\nmodules = ["jobs"]\n[targets.dev]\n')
    (cli.folder / "jobs.py").write_text(JOBS)
    return cli


def many(cli: Cli, cron: str, count: int) -> str:
    triggers = [
        {"name": f"orders/{number}", "kind": "schedule", "spec": {"cron": cron, "timezone": "UTC"}}
        for number in range(count)
    ]
    job = index().jobs["orders"].model_dump(mode="json")
    write_bundle(Bundle(index(jobs={"orders": {**job, "triggers": triggers}}), {}), cli.folder / "bundle")
    return "bundle"


def test_the_project_here_is_compiled_and_played(local: Cli) -> None:
    found = local.json("simulate", *DAY_OF_CHANGE, "--python", sys.executable)
    assert found.code == 0, found.err
    document = found.document
    assert (document["source"], document["location"], document["target"]) == ("project", "cafe", "dev")
    assert (document["from"], document["to"]) == ("2026-03-08T06:00:00.000000Z", "2026-03-08T09:00:00.000000Z")
    assert (document["schedules"], document["ticks"], document["runs"]) == (3, 5, 4)
    assert [(one["scheduled_for"][11:16], one["trigger"], one["covered_by"]) for one in document["items"]] == [
        ("06:00", "stock/hourly", None),
        ("07:00", "orders/schedule", None),
        ("07:00", "stock/hourly", None),
        ("07:00", "stock/morning", "stock/hourly"),
        ("08:00", "stock/hourly", None),
    ]
    moved = document["items"][1]
    assert (moved["local_time"], moved["abbreviation"], moved["zone_change"]) == (
        "2026-03-08T03:00:00-04:00", "EDT", True,
    )  # fmt: skip
    assert document["busiest_minutes"][0] == {
        "minute": "2026-03-08T07:00:00.000000Z",
        "ticks": 3,
        "runs": 2,
        "triggers": ["orders/schedule", "stock/hourly", "stock/morning"],
    }
    assert document["left_out"] == [{"trigger": "stock/off", "reason": "is disabled and makes no ticks"}]


def test_people_read_local_time_utc_marks_and_the_busiest_minutes(local: Cli) -> None:
    out = local.run("simulate", ".", *DAY_OF_CHANGE, "--python", sys.executable).out
    lines = [line.split() for line in out.splitlines()]
    assert [
        "2026-03-08T03:00:00-04:00",
        "EDT",
        "2026-03-08T07:00:00.000000Z",
        "orders/schedule",
        "clocks",
        "change",
    ] in lines
    assert [
        *[
            "2026-03-08T07:00:00+00:00",
            "UTC",
            "2026-03-08T07:00:00.000000Z",
            "stock/morning",
            "covered",
            "by",
            "stock/hourly",
        ]
    ] in lines
    assert "busiest minutes:" in out
    assert ["2026-03-08T07:00:00.000000Z", "3", "2", "orders/schedule,", "stock/hourly,", "stock/morning"] in lines


def test_a_limit_shortens_the_list_and_not_the_counts(cli: Cli) -> None:
    bundle = many(cli, "0 * * * *", 7)
    found = cli.json("simulate", bundle, *DAY_OF_CHANGE, "--limit", "2").document
    assert (len(found["items"]), found["ticks"], len(found["busiest_minutes"])) == (2, 21, 3)
    out = cli.run("simulate", bundle, *DAY_OF_CHANGE, "--limit", "2").out
    assert "and 19 more (--limit)" in out
    assert "orders/0, orders/1, orders/2, orders/3, orders/4 and 2 more" in out


def test_the_period_is_the_next_seven_days_unless_it_is_given(cli: Cli) -> None:
    found = cli.json("simulate", many(cli, "0 0 * * *", 1)).document
    assert found["ticks"] == 7
    begun = cli.json("simulate", "bundle", "--from", "2026-03-01T00:00:00Z").document
    assert begun["to"] == "2026-03-08T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--from", "2026-03-01T00:00:00"), "--from: '2026-03-01T00:00:00' is no instant with a zone"),
        (("--from", "2026-03-02T00:00:00Z", "--to", "2026-03-01T00:00:00Z"), "to: the period ends before it begins"),
        (
            ("--from", "2026-03-01T00:00:00Z", "--to", "2126-03-01T00:00:00Z"),
            "to: the period is longer than 3,660 days",
        ),
        (("--from", "2026-03-01T00:00:00Z", "--to", "2026-04-01T00:00:00Z"), "more than 50,000 ticks in this period"),
        (("--from", "9999-12-31T00:00:00Z"), "--from: lies at the end of the calendar"),
        (("--python", sys.executable), "this bundle is compiled already"),
    ],
)
def test_a_period_that_cannot_be_played_is_refused_in_one_sentence(cli: Cli, words: tuple[str, ...], part: str) -> None:
    refused = cli.json("simulate", many(cli, "* * * * *", 2), *words)
    assert refused.code == 2
    assert part in refused.document["error"]["detail"]


def test_a_folder_that_is_none_and_nowhere_to_look_are_told_apart(cli: Cli) -> None:
    assert "PROJECT: nowhere is no folder" in cli.run("simulate", "nowhere").err
    assert "no server is known" in cli.run("simulate").err


def test_with_a_server_a_named_folder_still_needs_none(ready: Cli, server: ScriptedServer) -> None:
    assert ready.run("simulate", many(ready, "0 * * * *", 1), *DAY_OF_CHANGE).code == 0
    assert server.asked == []
