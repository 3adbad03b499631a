"""Read what a tool writes, bounded and forgiving: a broken line or document is as good as none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...kernel.limits import RESULT_DOCUMENT_BYTES, TEXT_FIELD_CHARACTERS

_READ_BYTES = 4 * 1024 * 1024


def read_document(path: Path) -> Mapping[str, Any] | None:
    """The JSON object in ``path``; ``None`` when it is missing, too large, or anything else."""
    try:
        if path.stat().st_size > RESULT_DOCUMENT_BYTES:
            return None
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def shortened(text: object) -> str | None:
    """A text as a report may carry it, or ``None``."""
    return str(text)[:TEXT_FIELD_CHARACTERS] if text else None


class LiveRecords:
    """Follows a growing file of JSON lines; each record is given once, a line only when it is complete."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Iterator[Mapping[str, Any]]:
        """The records that were completed since the last call, up to a few megabytes of them."""
        for line in self._lines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record

    def _lines(self) -> list[bytes]:
        if self._path is None or not self._path.is_file():
            return []
        with self._path.open("rb") as stream:
            stream.seek(self._offset)
            chunk = stream.read(_READ_BYTES)
        complete, newline, _ = chunk.rpartition(b"\n")
        if not newline and len(chunk) == _READ_BYTES:
            complete, newline = chunk, b""  # one endless line: skip over it
        self._offset += len(complete) + len(newline)
        return complete.split(b"\n")
