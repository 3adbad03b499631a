"""Every row of scheduler.md 8.4, in its order, and what settles (8.5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.runs.states import STATE_OF_REASON
from chalicelib.workers.outcome import End, Intent, Tool, decide, not_started
from chalicelib.workers.process import Ending
from chalicelib.workers.runners.plan import Evidence, Failure

DONE = Evidence(document=True, touched=3)
BROKEN = Evidence(document=True, touched=3, failure=Failure("R002", "dim: boom"))
NOTHING = Evidence(document=True, touched=0)
EARLY = Evidence(failure=Failure("S007", "unknown selector"))
INT, KILL, TERM = 2, 9, 15


def end(tool: Tool = "sqb", *, code: int | None = None, signal: int | None = None, **fields: Any) -> End:
    return replace(End(tool, Ending(code, signal), DONE, settle_seconds=900), **fields)


ROWS = [
    # cancel intent: whatever the exit
    (end(code=0, intent="cancel"), "cancelled", None, None),
    (end(signal=KILL, intent="cancel"), "cancelled", None, None),
    (end("dbt", code=2, intent="cancel"), "cancelled", None, None),
    (end("command", code=7, intent="cancel"), "cancelled", None, None),
    # other intents, and a signal that we did not send
    (end(code=0, intent="timeout"), "failed", "timed_out", None),
    (end(signal=INT, intent="timeout"), "failed", "timed_out", None),
    (end(code=1, intent="interrupt"), "failed", "interrupted", None),
    (end(code=0, intent="revoke"), "failed", "interrupted", None),
    (end(signal=KILL), "failed", "killed", "signal_9"),
    (end("command", signal=11), "failed", "killed", "signal_11"),
    # exit 0, no node touched
    (end(code=0, evidence=NOTHING), "failed", "empty_selection", None),
    (end("dbt", code=0, evidence=NOTHING), "failed", "empty_selection", None),
    (end(code=0, evidence=NOTHING, on_empty="succeed"), "succeeded", None, None),
    (end(code=0, evidence=NOTHING, has_nodes=False), "succeeded", None, None),
    # exit 0
    (end(code=0), "succeeded", None, None),
    (end("dbt", code=0), "succeeded", None, None),
    # sqb
    (end(code=1, evidence=BROKEN), "failed", "tool_failed", "R002"),
    (end(code=1, evidence=EARLY), "failed", "pre_execution", "S007"),
    (end(code=2, evidence=Evidence()), "failed", "usage", "exit_2"),
    (end(code=99, evidence=Evidence()), "failed", "tool_failed", "exit_99"),
    # dbt
    (end("dbt", code=1, evidence=BROKEN), "failed", "tool_failed", "R002"),
    (end("dbt", code=1, evidence=Evidence()), "failed", "tool_failed", "exit_1"),
    (end("dbt", code=2, evidence=Evidence()), "failed", "pre_execution", "exit_2"),
    # command
    (end("command", code=0, evidence=Evidence()), "succeeded", None, None),
    (end("command", code=3, evidence=Evidence(), ok_exit_codes=(0, 3)), "succeeded", None, None),
    (end("command", code=0, evidence=Evidence(), ok_exit_codes=(3,)), "failed", "tool_failed", "exit_0"),
    (end("command", code=1, evidence=Evidence()), "failed", "tool_failed", "exit_1"),
    # it could not be started
    (End("dbt", Ending(error="no dbt"), Evidence()), "failed", "pre_execution", "cannot_start"),
]


@pytest.mark.parametrize(("given", "state", "reason", "code"), ROWS)
def test_rows(given: End, state: str, reason: str | None, code: str | None) -> None:
    outcome = decide(given)
    assert (outcome.state, outcome.end_reason, outcome.error_code) == (state, reason, code)
    if outcome.end_reason is not None:
        assert STATE_OF_REASON[outcome.end_reason] == state


def test_warnings_count_only_where_it_succeeded() -> None:
    warned = Evidence(document=True, touched=3, warnings=2)
    assert decide(end(code=0, evidence=warned)).warnings == 2
    assert decide(end(code=1, evidence=warned)).warnings == 0


SETTLED = [
    (end(code=0), True),
    (end(code=1), True),
    (end(code=0, intent="cancel", sent=frozenset({INT})), True),
    (end(signal=INT, intent="cancel", sent=frozenset({INT})), True),
    (end(signal=INT), False),
    (end(signal=TERM, intent="timeout", sent=frozenset({INT, TERM})), False),
    (end(code=0, intent="timeout", sent=frozenset({INT, TERM})), False),
    (end(signal=KILL, intent="cancel", sent=frozenset({INT, TERM, KILL})), False),
    (end(signal=KILL), False),
    (replace(end(), ending=Ending(signal=KILL, witnessed=False), sent=frozenset({INT})), False),
    (replace(end(), ending=Ending(error="no such file")), True),
    (end(signal=KILL, settle_seconds=0), True),
]


@pytest.mark.parametrize(("given", "expected"), SETTLED)
def test_settled_means_an_own_exit_or_sigint(given: End, expected: bool) -> None:
    assert decide(given).settled is expected


@pytest.mark.parametrize("intent", ["interrupt", "timeout", "revoke", None])
def test_before_the_start_a_run_is_lost_unless_it_is_cancelled(intent: Intent | None) -> None:
    assert not_started("cancel").state == "cancelled"
    outcome = not_started(intent)
    assert (outcome.state, outcome.end_reason, outcome.settled) == ("launch_failed", "lost_before_start", True)
