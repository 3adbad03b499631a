"""Waiting for the end of a run: bounded polls that grow apart, and a Ctrl-C that leaves the run alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..client.address import path_of
from ..client.deadline import Deadline
from ..kernel import limits
from ..kernel.errors import RunNotSucceeded
from ..runs.states import TERMINAL
from .command import Session

_GROWTH = 1.5


def wait_for_end(session: Session, run_id: str) -> dict[str, Any]:
    """The run when it is terminal; each new state is said on stderr.

    ``--timeout`` bounds the wait, else the longest time that a run may take. Raises ``RunNotSucceeded`` when it is over;
    Ctrl-C says that the run goes on, and is raised again.
    """
    seconds = session.options.timeout or float(limits.TIMEOUT_MAX_SECONDS["container"])
    try:
        for run in observed(session, run_id, seconds):
            if run["state"] in TERMINAL:
                return run
    except KeyboardInterrupt:
        session.say(f"the run {run_id} goes on; wait again with `tidemill runs wait {run_id}`, or cancel it with")
        session.say(f"  tidemill runs cancel {run_id}")
        raise
    raise RunNotSucceeded(
        f"the run {run_id} has not ended within {seconds:g} s; it goes on: `tidemill runs why {run_id}` says what it waits for"
    )


def observed(session: Session, run_id: str, seconds: float) -> Iterator[dict[str, Any]]:
    """The run as it is now and after each wait, until ``seconds`` are over."""
    deadline, interval, state = Deadline(session.clock, seconds), limits.WAIT_FIRST_SECONDS, None
    with session.client_until(None) as api:
        while True:
            run: dict[str, Any] = api.call("GET", path_of("runs", run_id)).body
            if run["state"] != state:
                state = run["state"]
                session.say(f"{run_id} {state}")
            yield run
            if deadline.left_seconds() <= 0:
                return
            session.clock.sleep(min(interval, deadline.left_seconds()))
            interval = min(interval * _GROWTH, limits.WAIT_MAX_SECONDS)


def ended_badly(run: dict[str, Any]) -> int:
    """The exit code of a run that was waited for: 0 when it succeeded, else 1."""
    return 0 if run["state"] == "succeeded" else 1
