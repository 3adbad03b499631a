"""Waiting for the end of a run: bounded polls that grow apart, and a Ctrl-C that leaves the run alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..client.address import path_of
from ..client.deadline import Deadline
from ..kernel import limits
from ..kernel.errors import RunNotSucceeded
from ..runs.states import TERMINAL
from .command import Session
from .output import Outcome
from .views import run_facts

_GROWTH = 1.5
ReadRun = Callable[[str], dict[str, Any]]


def wait_for_end(session: Session, run_id: str, read: ReadRun | None = None) -> dict[str, Any]:
    """The run when it is terminal; each new state is said on stderr. ``read`` looks at it; by default over the API.

    ``--timeout`` bounds the wait, else the longest time that a run may take. Raises ``RunNotSucceeded`` when it is over;
    Ctrl-C says that the run goes on, and is raised again.
    """
    seconds = session.options.timeout or float(limits.TIMEOUT_MAX_SECONDS["container"])
    try:
        for run in observed(session, run_id, seconds, read):
            if run["state"] in TERMINAL:
                return run
    except KeyboardInterrupt:
        session.say(f"the run {run_id} goes on; wait again with `tidemill runs wait {run_id}`, or cancel it with")
        session.say(f"  tidemill runs cancel {run_id}")
        raise
    raise RunNotSucceeded(
        f"the run {run_id} has not ended within {seconds:g} s; it goes on: `tidemill runs why {run_id}` says what it waits for"
    )


def requested(session: Session, body: dict[str, Any], *, wait: bool, read: ReadRun | None = None) -> Outcome:
    """The answer of a command that asked for a run, at once or after the run's end."""
    run_id = body["run"]["run_id"]
    if body.get("reused"):
        session.say(f"this run was requested before; it is {body['run']['state']}")
    if not wait:
        return Outcome(body, [run_facts(body["run"])], f"the run is {run_id}; see `tidemill runs show {run_id}`")
    ended = wait_for_end(session, run_id, read)
    return Outcome({**body, "run": ended}, [run_facts(ended)], f"the run is {run_id}", exit_code=ended_badly(ended))


def observed(session: Session, run_id: str, seconds: float, read: ReadRun | None = None) -> Iterator[dict[str, Any]]:
    """The run as it is now and after each wait, until ``seconds`` are over."""
    deadline, interval, state = Deadline(session.clock, seconds), limits.WAIT_FIRST_SECONDS, None
    with _reading(session, read) as look:
        while True:
            run = look(run_id)
            if run["state"] != state:
                state = run["state"]
                session.say(f"{run_id} {state}")
            yield run
            if deadline.left_seconds() <= 0:
                return
            session.clock.sleep(min(interval, deadline.left_seconds()))
            interval = min(interval * _GROWTH, limits.WAIT_MAX_SECONDS)


@contextmanager
def _reading(session: Session, read: ReadRun | None) -> Iterator[ReadRun]:
    """With a client of its own: the time limit of a command is that of the wait, not of each look."""
    if read is not None:
        yield read
        return
    with session.client_until(None) as api:
        yield lambda run_id: api.call("GET", path_of("runs", run_id)).body


def ended_badly(run: dict[str, Any]) -> int:
    """The exit code of a run that was waited for: 0 when it succeeded, else 1."""
    return 0 if run["state"] == "succeeded" else 1
