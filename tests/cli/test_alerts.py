"""`tidemill alerts list`, and what `doctor` says of the scheduler."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli
from tests.scripted_server import Asked, Reply, ScriptedServer, good

ALERT = {
    "condition": "run_waiting", "subject": "run_0123456789abcdef", "episode": "run_0123456789abcdef",
    "detail": {"job": "orders", "blockers": ["pool_full"]}, "first_seen_at": "2026-03-01T12:00:00.000000Z", "closed_at": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ([], "GET /v1/alerts?open=true"),
        (["--all"], "GET /v1/alerts"),
        (["--condition", "run_lost", "--limit", "5"], "GET /v1/alerts?condition=run_lost&limit=5&open=true"),
    ],
)
def test_open_alerts_are_shown_unless_all_are_wanted(
    ready: Cli, server: ScriptedServer, arguments: list[str], path: str
) -> None:
    server.answer(lambda _: good({"items": [ALERT], "next_cursor": "c1"}))
    found = ready.run("alerts", "list", *arguments)
    assert server.paths() == [path]
    for text in ("run_waiting", "run_0123456789abcdef", "2026-03-01T12:00:00.000000Z", "orders"):
        assert text in found.out
    assert "--cursor c1" in found.err


def test_no_alert_is_said_as_such(ready: Cli, server: ScriptedServer) -> None:
    server.answer(lambda _: good({"items": [], "next_cursor": None}))
    assert ready.run("alerts", "list").out == "no alert is open\n"


@pytest.mark.parametrize(("scheduler", "code"), [("ok", 0), ("late", 1)])
def test_doctor_fails_when_nobody_schedules(ready: Cli, server: ScriptedServer, scheduler: str, code: int) -> None:
    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/ready"):
            return good({"status": "ready", "scheduler": scheduler, "late_shards": [0] if code else []})
        return good({"release": "0.1.0", "tzdata": "2026a"})

    server.answer(answer)
    found = ready.json("doctor")
    states = {check["check"]: check for check in found.document["checks"]}
    assert (states["scheduler"]["state"], states["storage"]["state"]) == ("failed" if code else "ok", "ok")
    assert ("shards 0" in states["scheduler"]["detail"]) is bool(code)
