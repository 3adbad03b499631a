"""Each class of error: one message, the right exit code, with --json one document."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from chalicelib.kernel.errors import EXIT_OF_CODE, EXIT_OF_STATUS, STATUS
from tests.cli.conftest import TOKEN, Cli
from tests.scripted_server import DROPPED, Reply, ScriptedServer, good, problem

RUN = "run_0123456789abcdef"

ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "title", "detail", "exit_code", "errors", "next_step"],
            "properties": {
                "code": {"type": "string"},
                "title": {"type": "string", "minLength": 1},
                "detail": {"type": "string", "minLength": 1},
                "exit_code": {"enum": [1, 2, 4, 5, 6]},
                "next_step": {"type": ["string", "null"]},
                "errors": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["field", "code", "message"],
                        "additionalProperties": {"type": "string"},
                    },
                },
            },
        }
    },
}
EXIT_OF_PROBLEM = [
    (code, status, EXIT_OF_STATUS[status]) for code, status in STATUS.items() if code not in EXIT_OF_CODE
]


@pytest.mark.parametrize(("code", "status", "exit_code"), EXIT_OF_PROBLEM)
def test_every_problem_of_a_change_has_its_exit_code(
    ready: Cli, server: ScriptedServer, code: str, status: int, exit_code: int
) -> None:
    content = problem(status, code, "it is so", errors=[{"field": "f", "code": code, "message": "is wrong"}]).content
    # a wait as long as this is not waited for, so that a busy server is asked once
    server.answer(lambda _: Reply(status, content, {"retry-after": "9000"}))
    # a gateway's time-out is repeated where that is safe, and takes its time; a token is never issued twice
    words = ["admin", "token", "issue", "--operator"] if code == "timeout" else ["runs", "cancel", RUN]
    ended = ready.json(*words)
    assert ended.code == exit_code
    jsonschema.validate(ended.document, ERROR_SCHEMA)
    assert ended.document["error"]["code"] == code
    assert ended.document["error"]["request_id"] == "req_of_the_server"
    assert "it is so" in ended.err
    assert code == "timeout" or "f: is wrong" in ended.err
    assert "request id: req_of_the_server" in ended.err


@pytest.mark.parametrize(
    ("status", "exit_code"), [(402, 2), (409, 5), (412, 5), (428, 2), (451, 2), (500, 1), (507, 1)]
)
def test_a_code_of_a_later_release_counts_by_its_status(
    ready: Cli, server: ScriptedServer, status: int, exit_code: int
) -> None:
    server.answer(lambda _: problem(status, "of_a_later_release"))
    ended = ready.json("runs", "show", RUN)
    assert ended.code == exit_code
    assert ended.document["error"]["code"] == "of_a_later_release"


def test_an_error_for_people_is_one_message_on_stderr(ready: Cli, server: ScriptedServer) -> None:
    server.answer(lambda _: problem(401, "not_authenticated", "the token is not known here"))
    ended = ready.run("runs", "list")
    assert (ended.code, ended.out) == (4, "")
    assert ended.err.splitlines()[0] == "error: the token is not known here"
    assert "--token-file" in ended.err
    assert TOKEN not in ended.err


def test_no_acknowledgement_of_a_change_is_exit_6_with_the_id_to_repeat(ready: Cli, server: ScriptedServer) -> None:
    server.answer(lambda _: Reply(502, b""))
    ended = ready.json("admin", "token", "issue", "--operator")
    assert ended.code == 6
    assert "cannot be repeated safely" in ended.err
    server.answer_in_turn(DROPPED, problem(503, "unavailable"), Reply(503, b"", {"retry-after": "9000"}))
    ended = ready.json("runs", "cancel", RUN, "--id", "can_0123456789abcdef")
    assert ended.code == 6
    assert "--id can_0123456789abcdef" in ended.err
    assert ended.document["error"]["next_step"].startswith("run the same command again")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runs", "list", "--no-such-option"], "--no-such-option"),
        (["runs", "bogus"], "bogus"),
        (["bogus"], "bogus"),
        (["runs", "show"], "RUN"),
        (["runs", "list", "--limit", "0"], "--limit"),
        (["runs", "list", "--limit", "many"], "--limit"),
        (["runs", "list", "--after", "yesterday"], "--after"),
        (["runs", "list", "--after", "2026-01-01T00:00:00"], "zone"),
        (["runs", "list", "--timeout", "0"], "--timeout"),
        (["runs", "cancel", RUN, "--id", "short"], "--id"),
        (["runs", "logs", RUN, "--follow"], "--follow"),
        (["run", "orders", "--input", "novalue"], "NAME=VALUE"),
        (["triggers", "preview"], "--cron"),
        (["triggers", "preview", "a/b", "--cron", "* * * * *"], "either"),
        (["triggers", "preview", "--cron", "* * * * *"], "--timezone"),
        (["triggers", "preview", "--cron", "* * * *", "--timezone", "UTC"], "five"),
        (["triggers", "preview", "--cron", "0 0 30 2 *", "--timezone", "UTC"], "never fires"),
        (["triggers", "preview", "--cron", "0 3 * * *", "--timezone", "Europe/Brusels"], "Europe/Brussels"),
        (["publish", "--check", "--id", "pub_0123456789abcdef"], "--check"),
        (["publish", "no-such-folder"], "no-such-folder"),
        (["compile", "--project", "no-such-folder"], "no-such-folder"),
        (["admin", "store", "init"], "--store"),
        (["admin", "token", "issue"], "--location"),
        (["admin", "token", "issue", "--location", "cafe"], "--permission"),
        (["admin", "token", "issue", "--operator", "--location", "cafe"], "--operator"),
        (["admin", "target", "set", "cafe", "dev", "--env", "nothing"], "--env"),
        (["runs", "list", "--server", "http://example.com"], "https"),
        (["runs", "list", "--server", "https://me:word@example.com"], "user name"),
        (["runs", "list", "--token-file", "absent"], "absent"),
    ],
)
def test_bad_usage_is_exit_2_naming_the_thing(ready: Cli, server: ScriptedServer, words: list[str], said: str) -> None:
    server.answer(lambda _: good({"definition": {"inputs": {}}}))
    ended = ready.json(*words)
    assert ended.code == 2
    jsonschema.validate(ended.document, ERROR_SCHEMA)
    assert said in ended.document["error"]["detail"]
    assert "error: " in ended.err


def test_without_a_server_the_next_step_is_named(cli: Cli) -> None:
    ended = cli.run("runs", "list")
    assert ended.code == 2
    assert "tidemill dev" in ended.err


def test_without_a_project_the_missing_option_is_named(cli: Cli, server: ScriptedServer) -> None:
    ended = cli.run("jobs", "list", "--server", server.url)
    assert ended.code == 2
    assert "--location" in ended.err
    assert server.asked == []


def test_a_server_that_is_gone_is_exit_1(cli: Cli) -> None:
    ended = cli.json("runs", "list", "--server", "http://127.0.0.1:9", "--timeout", "0.1")
    assert ended.code == 1
    assert ended.document["error"]["code"] == "unavailable"


def test_what_a_server_sends_cannot_steer_a_terminal(ready: Cli, server: ScriptedServer) -> None:
    server.answer(lambda _: problem(404, "not_found", "no\x1b[2J such\x07 run"))
    ended = ready.run("runs", "show", RUN)
    assert "\x1b" not in ended.err
    assert "\\x1b[2J" in ended.err
