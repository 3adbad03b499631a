"""How an error reaches people and programs: one message, the wrong fields, the next step, the exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ..kernel.errors import (
    EXIT_OF_STATUS,
    TidemillError,
    exit_code_of,
)
from . import output

_FAILED, _USAGE = 1, 2
_SERVER_ERROR = 500

NEXT_STEP: Mapping[str, str] = {
    "not_authenticated": "give a token with --token-file or TIDEMILL_TOKEN",
    "token_expired": "ask an administrator for a new token (`tidemill admin token issue`)",
    "token_revoked": "ask an administrator for a new token (`tidemill admin token issue`)",
    "forbidden": "use a token with this permission for this location and target",
    "id_reused": "leave --id out to make a new request, or give the earlier request unchanged",
    "snapshot_not_current": "look at what was published meanwhile, then publish again with --expect-current of that one",
    "timeout": "run the same command again, with the printed --id where there is one: it happens once",
    "throttled": "wait and run the command again",
}


_LOOK_FIRST = "list what is there now before you ask again; this change cannot be repeated safely"


def next_step(error: TidemillError) -> str | None:
    """What to do about ``error``, where one thing helps."""
    if error.code == "timeout" and error.facts.get("repeatable") is False:
        return _LOOK_FIRST
    return NEXT_STEP.get(error.code)


def exit_code(error: TidemillError) -> int:
    """The exit code; a problem whose code this release does not know counts by its status."""
    if type(error) is TidemillError and isinstance(status := error.facts.get("status"), int):
        fallback = _FAILED if status >= _SERVER_ERROR else _USAGE
        return EXIT_OF_STATUS.get(status, fallback)
    return exit_code_of(error)


def document(error: TidemillError) -> dict[str, Any]:
    """The one JSON document of a command that ended with ``error``."""
    facts = {name: value for name, value in error.facts.items() if value is not None}
    code = facts.pop("code", None) or error.code
    return {
        "error": {
            "code": code,
            "title": error.title(),
            "detail": error.detail,
            "exit_code": exit_code(error),
            "errors": [{"field": one.field, "code": one.code, "message": one.message} for one in error.fields],
            "next_step": next_step(error),
            **{name: value for name, value in facts.items() if isinstance(value, str | int | float | bool)},
        }
    }


def show(error: TidemillError, *, as_json: bool) -> int:
    """Write the error to stderr, with ``--json`` as a document to stdout too, and return the exit code."""
    for line in _lines(error):
        output.say(line)
    if as_json:
        _write_document(error)
    return exit_code(error)


def _write_document(error: TidemillError) -> None:
    """The exit code already says what happened, so a stdout that fails changes nothing."""
    try:
        if sys.stdout is not None:
            sys.stdout.write(output.json_text(document(error), ascii_only=True))
            sys.stdout.flush()
    except (OSError, ValueError):
        output.silence_stdout()


def _lines(error: TidemillError) -> Iterator[str]:
    yield f"error: {error.detail}"
    for one in error.fields:
        if one.message not in error.detail:
            yield f"  {one.field}: {one.message}"
    if step := next_step(error):
        yield f"next: {step}"
    if request_id := error.facts.get("request_id"):
        yield f"request id: {request_id}"
