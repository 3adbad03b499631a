"""The calls of one claim: its token, and repeating what got no answer (S40)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
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

    def __init__(self, random: RandomBits) -> None:
        self._random = random
        self._tries = 0

    def next_seconds(self) -> float:
        """Between half and the whole of 0.5, 1, 2 ... 30 s."""
        whole = min(WORKER_RETRY_MAX_SECONDS, WORKER_RETRY_FIRST_SECONDS * float(1 << min(self._tries, _DOUBLINGS)))
        self._tries += 1
        return whole * (0.5 + self._random.getrandbits(16) / 2**17)


class ClaimSession:
    """One accepted claim. ``stopped`` ends every wait between repeats; the call itself is bounded by the client."""

    def __init__(self, api: WorkerApi, random: RandomBits, run_id: str, request: AcceptRequest, token: str) -> None:
        self.run_id = run_id
        self.claim_id = request.claim_id
        self._api = api
        self._random = random
        self._request = request
        self._token = token
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

    def upload_log(self, name: str, data: bytes) -> None:
        """Store one part of the log; one attempt."""
        link = self._api.log_uploads(self.run_id, self._token, [name]).get(name)
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
        backoff, tries, renew = Backoff(self._random), 0, False
        while True:
            tries += 1
            try:
                if renew:
                    self._renew()
                return call(self._token)
            except TidemillError as error:
                verdict = verdict_of(error)
                if verdict not in {"transient", "credential"} or (verdict == "credential" and renew):
                    raise
                renew = verdict == "credential"
                if attempts is not None and tries >= attempts:
                    raise GaveUp(error.detail) from error
                if stopped.wait(0 if renew else backoff.next_seconds()) and attempts is None:
                    raise GaveUp(error.detail) from error

    def _renew(self) -> None:
        """Accept again: the same boot gets a new token, and the old one ends."""
        with self._lock:
            self._token = self._api.accept(self.run_id, self._request).worker_token
