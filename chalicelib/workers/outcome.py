"""What an end means: a pure function of how the program ended, what we wanted, and what the tool left (8.4).

The first matching row wins; the rows stand in ``decide`` in the order of the specification's table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..kernel.limits import TEXT_FIELD_CHARACTERS
from ..runs.model import Outcome
from ..runs.states import EndReason
from .process import Ending
from .runners.plan import Evidence

Intent = Literal["cancel", "timeout", "interrupt", "revoke"]
Tool = Literal["sqb", "dbt", "command"]

_SIGINT = 2
_EXEC_FAILED = "cannot_start"
_FAILED, _USAGE = 1, 2
_OF_INTENT: Mapping[Intent, tuple[EndReason, str]] = {
    "timeout": ("timed_out", "the job's time limit was reached"),
    "interrupt": ("interrupted", "the worker was stopped"),
    "revoke": ("interrupted", "the claim was revoked, or the worker lost its lease"),
}


@dataclass(frozen=True, slots=True)
class End:
    """All that decides the outcome of a run whose program was started.

    ``sent`` are the signals that we sent; ``has_nodes`` says whether the job (or its selection) names nodes.
    """

    tool: Tool
    ending: Ending
    evidence: Evidence
    intent: Intent | None = None
    sent: frozenset[int] = field(default_factory=frozenset)
    has_nodes: bool = True
    on_empty: Literal["fail", "succeed"] = "fail"
    ok_exit_codes: tuple[int, ...] = (0,)
    settle_seconds: int = 0


def decide(end: End) -> Outcome:
    """The outcome to report."""
    if end.intent == "cancel":
        return _outcome(end, "cancelled")
    if end.intent is not None:
        reason, message = _OF_INTENT[end.intent]
        return _outcome(end, "failed", reason, message=message)
    if end.ending.error is not None:
        return _outcome(end, "failed", "pre_execution", _EXEC_FAILED, end.ending.error)
    if end.ending.signal is not None:
        message = f"ended by signal {end.ending.signal}, which Tidemill did not send (out of memory, for example)"
        return _outcome(end, "failed", "killed", f"signal_{end.ending.signal}", message)
    if end.tool == "command":
        return _of_command(end)
    return _of_tool(end)


def _of_tool(end: End) -> Outcome:
    code = end.ending.exit_code
    if code == 0 and end.has_nodes and end.evidence.touched == 0:
        if end.on_empty == "succeed":
            return _outcome(end, "succeeded")
        return _outcome(end, "failed", "empty_selection", message="the tool touched no node, though the job has some")
    if code == 0:
        return _outcome(end, "succeeded")
    return _failed(end, _reason_of(end.tool, code, document=end.evidence.document))


def _reason_of(tool: Tool, code: int | None, *, document: bool) -> EndReason:
    if tool == "sqb" and code == _FAILED:
        return "tool_failed" if document else "pre_execution"
    if tool == "sqb" and code == _USAGE:
        return "usage"
    if tool == "dbt" and code == _USAGE:
        return "pre_execution"
    return "tool_failed"


def _of_command(end: End) -> Outcome:
    if end.ending.exit_code in end.ok_exit_codes:
        return _outcome(end, "succeeded")
    return _failed(end, "tool_failed")


def _failed(end: End, reason: EndReason) -> Outcome:
    failure = end.evidence.failure
    code = (failure.code if failure else None) or f"exit_{end.ending.exit_code}"
    return _outcome(end, "failed", reason, code, failure.message if failure else None)


def _outcome(
    end: End,
    state: Literal["succeeded", "failed", "cancelled"],
    reason: EndReason | None = None,
    error_code: str | None = None,
    message: str | None = None,
) -> Outcome:
    facts = {"exit_code": end.ending.exit_code, "signal": end.ending.signal, "leftovers": end.ending.leftovers or None}
    return Outcome(
        state=state,
        end_reason=reason,
        error_code=error_code,
        message=message[:TEXT_FIELD_CHARACTERS] if message else None,
        warnings=end.evidence.warnings if state == "succeeded" else 0,
        settled=settled(end),
        summary={**end.evidence.summary, **{name: value for name, value in facts.items() if value is not None}},
    )


def settled(end: End) -> bool:
    """Whether the warehouse has stopped working for this run: an own exit or SIGINT, no start, no settle time (8.5)."""
    if end.settle_seconds == 0 or end.ending.error is not None or not end.ending.ran:
        return True
    if not end.ending.witnessed or end.sent - {_SIGINT}:
        return False
    return end.ending.signal is None or (end.ending.signal == _SIGINT and _SIGINT in end.sent)


def not_started(intent: Intent | None) -> Outcome:
    """The outcome of a run that ends before its program was started."""
    if intent == "cancel":
        return Outcome(state="cancelled")
    return Outcome(
        state="launch_failed", end_reason="lost_before_start", message="the worker stopped before the run started"
    )
