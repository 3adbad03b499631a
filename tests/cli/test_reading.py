"""What commands print: one JSON document with --json, plain columns in a pipe, and only what the server said."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from chalicelib.cli.output import Facts, Table, rendered
from chalicelib.cli.terminal import drawn
from tests.cli.conftest import TOKEN, Cli
from tests.scripted_server import Asked, Reply, ScriptedServer, good, problem

RUN = "run_0123456789abcdef"
HERE = "/v1/locations/cafe/targets/dev"


def test_json_is_the_whole_of_stdout_and_progress_goes_to_stderr(ready: Cli, server: ScriptedServer) -> None:
    page = {"items": [{"run_id": RUN, "job": "orders", "state": "queued"}], "next_cursor": "c1"}
    server.answer(lambda _: good(page))
    found = ready.json("runs", "list", "--job", "orders", "--after", "2026-01-01T01:00:00+01:00", "--limit", "1")
    assert found.code == 0
    assert found.document == page
    assert "--cursor c1" in found.err
    assert server.asked[0].path == (
        "/v1/runs?location=cafe&target=dev&job=orders&after=2026-01-01T00%3A00%3A00.000000Z&limit=1"
    )
    assert server.asked[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_table_in_a_pipe_is_plain_columns(ready: Cli, server: ScriptedServer) -> None:
    items = [{"run_id": RUN, "job": "orders", "state": "failed", "end_reason": "tool_failed"}]
    server.answer(lambda _: good({"items": items, "next_cursor": None}))
    header, row = ready.run("runs", "list").out.splitlines()
    assert header.split() == [
        "run_id", "job", "location", "target", "origin", "state", "end_reason", "created_at", "finished_at",
    ]  # fmt: skip
    assert row.split() == [RUN, "orders", "-", "-", "-", "failed", "tool_failed", "-", "-"]


def test_everywhere_asks_for_no_place(ready: Cli, server: ScriptedServer) -> None:
    server.answer(lambda _: good({"items": [], "next_cursor": None}))
    assert ready.run("runs", "list", "--everywhere").out == "no such runs\n"
    assert server.paths() == ["GET /v1/runs"]


def test_show_tells_what_was_seen_of_the_workers(ready: Cli, server: ScriptedServer) -> None:
    seen = {"boot_id": "boot_1", "observed_at": "2026-03-01T12:00:00.000000Z", "kind": "lost", "counter": 7}
    run = {
        "run_id": RUN, "state": "running", "heartbeat_lost_at": seen["observed_at"], "heartbeats": [seen],
        "retry_number": 0, "retried_by": None,
    }  # fmt: skip
    server.answer(lambda _: good(run))
    lines = [line.split() for line in ready.run("runs", "show", RUN).out.splitlines()]
    assert ["heartbeat_lost_at", "2026-03-01T12:00:00.000000Z"] in lines
    assert ["2026-03-01T12:00:00.000000Z", "boot_1", "lost", "7"] in lines


def test_why_shows_each_blocker_since_when_and_what_clears_it(ready: Cli, server: ScriptedServer) -> None:
    blocker = {
        "code": "write_claim",
        "subject": "cafe/dev: main.orders",
        "detail": {"holder": "run_of_somebody_else"},
        "since": "2026-03-01T12:00:00.000000Z",
        "clears_when": "that run ends",
    }
    why = {"run_id": RUN, "state": "queued", "explanation": "it waits", "blockers": [blocker], "claim": None}
    server.answer(lambda _: good(why))
    found = ready.run("runs", "why", RUN)
    for text in (
        "queued: it waits",
        "write_claim",
        "2026-03-01T12:00:00.000000Z",
        "that run ends",
        "run_of_somebody_else",
    ):
        assert text in found.out
    assert ready.json("runs", "why", RUN).document == why


def test_a_run_is_shown_in_its_chain_of_retries(ready: Cli, server: ScriptedServer) -> None:
    ids = ["run_0", "run_1", "run_2"]
    chain = {
        one: {"run_id": one, "state": "failed", "retry_number": number, "retry_of": earlier, "retried_by": later}
        for number, (one, earlier, later) in enumerate(
            zip(ids, ["run_long_forgotten", *ids], [*ids[1:], None], strict=False)
        )
    }

    def answer(asked: Asked) -> Reply:
        found = chain.get(asked.path.rpartition("/")[2])
        return good(found) if found else problem(404, "not_found")

    server.answer(answer)
    found = ready.run("runs", "show", "run_1")
    table = [line.split() for line in found.out.splitlines()[-4:]]
    assert table[0][:3] == ["retry_number", "run_id", "state"]
    assert [row[:2] for row in table[1:]] == [["0", "run_0"], ["1", "run_1"], ["2", "run_2"]]
    assert ready.json("runs", "show", "run_1").document == chain["run_1"]


class Log:
    """A run whose log grows by a part each time that it is looked at."""

    def __init__(self, server: ScriptedServer) -> None:
        self.url = server.url
        self.looks = 0
        self.content = "zürich\n".encode()
        server.answer(self)

    def __call__(self, asked: Asked) -> Reply:
        if asked.path.startswith("/signed/"):
            start = int(asked.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
            if start >= len(self.content):
                return Reply(416, b"")
            return Reply(206 if start else 200, self.content[start:])
        if asked.path.endswith("/logs"):
            return good({"items": [{"name": "log", "url": f"{self.url}/signed/log?X-Amz-Signature=s"}]})
        self.looks += 1
        self.content += b"more\n" if self.looks > 1 else b""
        return good({"run_id": RUN, "state": "running" if self.looks < 3 else "succeeded"})


def test_logs_come_from_signed_links_without_a_credential(ready: Cli, server: ScriptedServer) -> None:
    Log(server)
    assert ready.run("runs", "logs", RUN).out == "zürich\n"
    signed = [one for one in server.asked if one.path.startswith("/signed/")]
    assert signed
    assert all("authorization" not in one.headers for one in signed)
    assert ready.json("runs", "logs", RUN).document == {"run_id": RUN, "items": [{"name": "log", "text": "zürich\n"}]}


def test_follow_prints_what_is_new_until_the_end(ready: Cli, server: ScriptedServer) -> None:
    Log(server)
    found = ready.run("runs", "logs", RUN, "--follow")
    assert (found.code, found.out) == (0, "zürich\nmore\nmore\n")


def test_waiting_ends_with_1_unless_the_run_succeeded(ready: Cli, server: ScriptedServer) -> None:
    server.answer_in_turn(good({"run_id": RUN, "state": "running"}), good({"run_id": RUN, "state": "failed"}))
    found = ready.json("runs", "wait", RUN)
    assert found.code == 1
    assert found.document["state"] == "failed"


def test_waiting_no_longer_than_the_time_given_says_that_the_run_goes_on(ready: Cli, server: ScriptedServer) -> None:
    server.answer(lambda _: good({"run_id": RUN, "state": "queued"}))
    found = ready.json("runs", "wait", RUN, "--timeout", "0.1")
    assert found.code == 1
    assert found.document["error"]["code"] == "run_not_succeeded"
    assert "it goes on" in found.err


def test_inputs_are_sent_as_the_types_that_the_job_declares(ready: Cli, server: ScriptedServer) -> None:
    kinds = {"text": "text", "whole": "integer", "part": "number", "flag": "boolean", "day": "date"}
    job = {"job": "orders", "definition": {"inputs": {name: {"type": kind} for name, kind in kinds.items()}}}
    sent: list[Any] = []

    def script(asked: Asked) -> Reply:
        if asked.method == "GET":
            return good(job)
        sent.append(asked.json)
        return good({"run": {"run_id": RUN, "state": "queued"}, "reused": False}, 201)

    server.answer(script)
    words = ["text=5", "whole=-3", "part=2.5", "flag=true", "day=2026-01-01", "unknown=a=b"]
    found = ready.run("run", "orders", "--id", RUN, *[part for word in words for part in ("--input", word)])
    assert found.code == 0
    inputs = {"text": "5", "whole": -3, "part": 2.5, "flag": True, "day": "2026-01-01", "unknown": "a=b"}
    assert sent == [{"run_id": RUN, "inputs": inputs}]
    assert f"--id {RUN}" in found.err
    for wrong in ("whole=2.5", "whole=true", "flag=1", "part=x", "whole="):
        refused = ready.run("run", "orders", "--input", wrong)
        assert refused.code == 2
        assert "must be of type" in refused.err


def test_a_lost_reply_of_a_run_repeats_the_same_run(ready: Cli, server: ScriptedServer) -> None:
    server.answer_in_turn(Reply(dropped=True), good({"run": {"run_id": RUN, "state": "succeeded"}, "reused": True}))
    found = ready.run("run", "orders")
    assert found.code == 0
    assert len({one.json["run_id"] for one in server.asked}) == 1
    assert server.asked[0].json["run_id"] in found.err
    assert "requested before" in found.err


def test_a_trigger_name_with_a_slash_is_one_part_of_the_path(ready: Cli, server: ScriptedServer) -> None:
    server.answer(lambda _: good({"name": "orders/schedule", "enabled": False}))
    assert ready.run("triggers", "disable", "orders/schedule", "--id", "req_0123456789abcdef").code == 0
    assert server.paths() == [f"PATCH {HERE}/triggers/orders%2Fschedule"]
    assert server.asked[0].json == {"enabled": False, "request_id": "req_0123456789abcdef"}


def test_preview_of_an_expression_needs_no_server(cli: Cli) -> None:
    words = ["triggers", "preview", "--cron", "30 2 * * *", "--timezone", "America/New_York"]
    found = cli.json(*words, "--after", "2026-03-07T12:00:00Z", "--count", "2")
    assert [one["scheduled_for"] for one in found.document["occurrences"]] == [
        "2026-03-08T07:00:00.000000Z", "2026-03-09T06:30:00.000000Z",
    ]  # fmt: skip
    assert [one["zone_change"] for one in found.document["occurrences"]] == [True, False]
    assert "clocks change" in cli.run(*words, "--after", "2026-03-07T12:00:00Z").out


def test_a_fixed_offset_is_accepted_with_a_warning_on_stderr(cli: Cli) -> None:
    found = cli.run("triggers", "preview", "--cron", "0 9 * * *", "--timezone", "EST", "--count", "1")
    assert found.code == 0
    assert "America/New_York" in found.err


def test_doctor_says_what_fails_and_what_was_not_looked_at(cli: Cli, server: ScriptedServer) -> None:
    alone = cli.json("doctor")
    assert (alone.code, alone.document["ok"]) == (0, True)
    assert alone.document["checks"][-1]["state"] == "skipped"
    server.answer(lambda asked: Reply(500, b"") if asked.path == "/v1/ready" else good({"release": "1", "tzdata": "2"}))
    found = cli.json("doctor", "--server", server.url)
    assert found.code == 1
    assert {one["check"]: one["state"] for one in found.document["checks"][-2:]} == {
        "server": "ok",
        "storage": "failed",
    }


def test_doctor_looks_into_the_project_s_own_interpreter(cli: Cli) -> None:
    text = 'name = "cafe"\nmodules = ["jobs"]\npython = "{}"\n[targets.dev]\n'
    cli.project(text.format(sys.executable))
    detail = {one["check"]: one for one in cli.json("doctor").document["checks"]}["project"]
    assert detail["state"] == "ok"
    assert "tidemill " in detail["detail"]
    cli.project(text.format("absent/bin/python"))
    found = cli.json("doctor")
    assert found.code == 1
    assert "absent" in found.out


def test_version_and_help(cli: Cli) -> None:
    assert cli.run("--version").out.startswith("tidemill ")
    assert "publish" in cli.run("--help").out
    assert "--json" in cli.run("runs", "list", "--help").out
    assert "publish" in cli.run().out


@pytest.mark.parametrize(
    "words", [["--help"], ["compile", "--json-output", "made.json"], ["triggers", "preview", "--help"]]
)
def test_help_and_compile_load_nothing_beyond_base_dependencies_and_typer(cli: Cli, words: list[str]) -> None:
    cli.project()
    heavy = ("boto3", "psycopg", "httpx", "rich", "tenacity", "chalice", "moto")
    program = f"""
import sys
from tidemill.cli import main
code = main({words!r})
loaded = [name for name in {heavy!r} if name in sys.modules]
sys.exit(f"loaded {{loaded}}" if loaded else code)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert found.returncode == 0, found.stderr


def test_a_terminal_gets_lines_and_never_markup() -> None:
    text = drawn([Table(("name", "state"), [("[red]x[/red]", "failed")]), Facts([("a", "[b]")]), "plain\x1b[2J"])
    assert "[red]x[/red]" in text
    assert "[b]" in text
    assert "\x1b[2J" not in text
    assert rendered([Table(("name",), [], empty="no names")], sys.stdout) == "no names\n"


def test_json_stays_valid_on_an_output_that_is_no_utf8(ready: Cli, server: ScriptedServer) -> None:
    server.answer(lambda _: good({"run_id": RUN, "state": "zürich"}))
    environment = {**ready.environment(), "PYTHONIOENCODING": "ascii"}
    process = subprocess.run(
        [sys.executable, "-c", "import sys; from tidemill.cli import main; sys.exit(main())", "runs", "show", RUN, "--json"],
        cwd=ready.folder, env=environment, capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert process.returncode == 0
    assert json.loads(process.stdout.decode("ascii"))["state"] == "zürich"
