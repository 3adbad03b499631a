"""The calls of one claim: its token, and repeating what got no answer (S40)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from ..kernel.errors import TidemillError, Unavailable
from ..kernel.ids import RandomBits
from ..kernel.limits import WORKER_RETRY_FIRST_SECONDS, WORKER_RETRY_MAX_SECONDS
from ..runs.model import AcceptRequest, Outcome, Report, RunInputs, StartRequest
from .server import WorkerApi, verdict_of

Answer = TypeVar("Answer")

_KEY_DIGITS = 32
_DOUBLINGS = 10


class GaveUp(Exception):  # noqa: N818 - a signal, not an error
    """No answer came, and there is a reason not to wait for one: the run is to stop, or the worker must end."""


class Backoff:
    """Growing waits with chance in them, so that many workers do not come back in step after an outage."""

    def __init__(self, random: RandomBits, longest_seconds: float = WORKER_RETRY_MAX_SECONDS) -> None:
        self._random = random
        self._longest_seconds = longest_seconds
        self._tries = 0

    def next_seconds(self) -> float:
        """Between half and the whole of 0.5, 1, 2 ... 30 s."""
        whole = min(self._longest_seconds, WORKER_RETRY_FIRST_SECONDS * float(1 << min(self._tries, _DOUBLINGS)))
        self._tries += 1
        return whole * (0.5 + self._random.getrandbits(16) / 2**17)


class ClaimSession:
    """One accepted claim. ``stopped`` ends every wait between repeats; the call itself is bounded by the client."""

    def __init__(
        self,
        api: WorkerApi,
        random: RandomBits,
        run_id: str,
        request: AcceptRequest,
        token: str,
        *,
        retry_max_seconds: float = WORKER_RETRY_MAX_SECONDS,
    ) -> None:
        self.run_id = run_id
        self.claim_id = request.claim_id
        self._api = api
        self._random = random
        self._request = request
        self._token = token
        self._retry_max_seconds = retry_max_seconds
        self._lock = threading.Lock()

    def inputs(self, stopped: threading.Event) -> RunInputs:
        """Read the inputs."""
        return self._repeated(lambda token: self._api.inputs(self.run_id, token), stopped)

    def start(self, stopped: threading.Event) -> None:
        """Ask to be running; a lost answer is asked for again."""
        request = StartRequest(boot_id=self._request.boot_id)
        self._repeated(lambda token: self._api.start(self.run_id, token, request), stopped)

    def report(self, report: Report, stopped: threading.Event, attempts: int | None = None) -> None:
        """Send a report until it is answered, or ``attempts`` times; a repeat has the same key and content (S37)."""
        self._repeated(lambda token: self._api.report(self.run_id, token, report), stopped, attempts)

    def upload_log(self, name: str, data: bytes, stopped: threading.Event | None = None) -> None:
        """Store one part of the log; one attempt, or asking the server until it answers or ``stopped`` is set."""

        def links(token: str) -> Mapping[str, str]:
            return self._api.log_uploads(self.run_id, token, [name])

        asked = self._repeated(links, stopped or threading.Event(), 1 if stopped is None else None)
        link = asked.get(name)
        if link is None:
            raise Unavailable(f"the server gave no address for {name}")
        self._api.upload(link, data)

    def verified_report(self) -> Report:
        """The report that verification passed."""
        return Report(report_key=self.key_of("verified"), kind="verified")

    def terminal_report(self, outcome: Outcome) -> Report:
        """The report of the end; its key covers the state, since a refused end may be followed by another."""
        return Report(report_key=self.key_of("terminal", outcome.state), kind="terminal", outcome=outcome)

    def key_of(self, *parts: object) -> str:
        """The report key of a part of this claim: the same after every repeat and restart of a thread."""
        text = "\n".join([self.claim_id, *(str(part) for part in parts)])
        return f"rep_{hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]}"

    def _repeated(self, call: Callable[[str], Answer], stopped: threading.Event, attempts: int | None = None) -> Answer:
        backoff, tries, renewed, token = Backoff(self._random, self._retry_max_seconds), 0, False, self._token
        while True:
            tries += 1
            try:
                return call(token)
            except TidemillError as error:
                verdict = verdict_of(error)
                if verdict not in {"transient", "credential"} or (verdict == "credential" and renewed):
                    raise
                if attempts is not None and tries >= attempts and verdict == "transient":
                    raise GaveUp(error.detail) from error
                renewed = verdict == "credential"
                if renewed:
                    token = self._renewed(token, stopped, attempts)
                elif stopped.wait(backoff.next_seconds()) and attempts is None:
                    raise GaveUp(error.detail) from error

    def _renewed(self, over: str, stopped: threading.Event, attempts: int | None) -> str:
        """Accept again: the same boot gets a new token, and the old one ends. Another thread may have done it."""
        with self._lock:
            if self._token == over:
                self._token = self._accepted_again(stopped, attempts)
            return self._token

    def _accepted_again(self, stopped: threading.Event, attempts: int | None) -> str:
        backoff, tries = Backoff(self._random, self._retry_max_seconds), 0
        while True:
            tries += 1
            try:
                return self._api.accept(self.run_id, self._request).worker_token
            except TidemillError as error:
                if verdict_of(error) != "transient":
                    raise
                if (attempts is not None and tries >= attempts) or stopped.wait(backoff.next_seconds()):
                    raise GaveUp(error.detail) from error
