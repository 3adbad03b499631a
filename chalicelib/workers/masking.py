"""Secrets of a run's environment never leave the worker: not in a log, a message or a report (S58)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from ..runs.model import NodeReport, Outcome

Told = TypeVar("Told", NodeReport, Outcome)

_HIDDEN = b"[hidden]"
# Shorter ones would turn half of a log into the mask.
_SHORTEST_SECRET = 4
_SHORTEST_LINE = 8


class Mask:
    """Replaces every secret by ``[hidden]``. A secret of several lines is hidden line by line too, as tools print it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        parts = {part.encode() for secret in secrets for part in _parts(secret)}
        self._secrets = sorted(parts, key=len, reverse=True)
        # How much of the end of a text may be the beginning of a secret.
        self.overlap = max((len(secret) - 1 for secret in self._secrets), default=0)

    def of_bytes(self, data: bytes) -> bytes:
        """``data`` without secrets."""
        for secret in self._secrets:
            data = data.replace(secret, _HIDDEN)
        return data

    def of_text(self, text: str) -> str:
        """``text`` without secrets."""
        return self.of_bytes(text.encode(errors="surrogateescape")).decode(errors="replace")

    def of_report(self, report: Told) -> Told:
        """The same report with its error code and message masked."""
        words = {"error_code": report.error_code, "message": report.message}
        hidden = {name: self.of_text(value) for name, value in words.items() if value is not None}
        return report.model_copy(update=hidden) if hidden and self._secrets else report


def _parts(secret: str) -> Iterator[str]:
    if len(secret) >= _SHORTEST_SECRET:
        yield secret
    lines = secret.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= _SHORTEST_LINE)
