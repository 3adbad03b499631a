"""The log of a run: signed links, read without a credential."""

from __future__ import annotations

import codecs
import sys
from typing import Any

from ..client.address import path_of
from ..kernel import limits
from ..kernel.errors import OutputFailed
from ..runs.states import TERMINAL
from .command import Session
from .output import Outcome, printable, silence_stdout
from .waiting import observed

_KEEP = "\n\t"


def read_all(session: Session, run_id: str) -> list[dict[str, str]]:
    """Every part of the log: its name and its text."""
    from ..client.downloads import download

    return [
        {"name": link["name"], "text": printable(download(link["url"]).decode(errors="replace"), keep=_KEEP)}
        for link in _links(session, run_id)
    ]


def followed(session: Session, run_id: str) -> Outcome:
    """Print what is new at each look until the run has ended."""
    seconds = session.options.timeout or float(limits.TIMEOUT_MAX_SECONDS["container"])
    follower = _Follower(session, run_id)
    for run in observed(session, run_id, seconds):
        follower.print_new()
        if run["state"] in TERMINAL:
            break
    return Outcome({"run_id": run_id})


class _Follower:
    """Remembers how far each part was read; a character cut in two waits for its rest."""

    def __init__(self, session: Session, run_id: str) -> None:
        self._session = session
        self._run_id = run_id
        self._read: dict[str, int] = {}
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def print_new(self) -> None:
        """Print what each part holds beyond what was printed before."""
        from ..client.downloads import download

        for link in _links(self._session, self._run_id):
            name, start = link["name"], self._read.get(link["name"], 0)
            content = download(link["url"], start=start)
            decoder = self._decoders.setdefault(name, codecs.getincrementaldecoder("utf-8")("replace"))
            self._read[name] = start + len(content)
            _print(printable(decoder.decode(content), keep=_KEEP))


def _links(session: Session, run_id: str) -> list[dict[str, Any]]:
    with session.client_until(None) as api:
        return list(api.pages(path_of("runs", run_id, "logs")))


def _print(text: str) -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()
    except (OSError, ValueError) as problem:
        silence_stdout()
        raise OutputFailed(f"the log could not be written ({getattr(problem, 'strerror', None) or problem})") from None
