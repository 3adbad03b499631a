"""The log of one run: what the child prints, masked, cut into parts, bounded.

The child writes into a pipe that this thread empties, so that a talkative program can fill neither memory nor disk:
after ``LOG_RUN_BYTES`` the rest is read and dropped, and the log says so.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from ..kernel.limits import LOG_LINE_BYTES, LOG_PART_BYTES, LOG_RUN_BYTES, TOOL_OUTPUT_BYTES

_LOGGER = logging.getLogger("tidemill.worker")
_READ_BYTES = 64 * 1024
_HIDDEN = b"[hidden]"
_DROPPED = b"\n[the log is full; what follows was dropped]\n"
_SHORTEST_SECRET = 4


class RunLog:
    """A thread that empties the child's output into ``folder``; ``output`` is the descriptor for the child."""

    def __init__(
        self,
        folder: Path,
        secrets: Sequence[str] = (),
        *,
        part_bytes: int = LOG_PART_BYTES,
        run_bytes: int = LOG_RUN_BYTES,
    ) -> None:
        self._reader, self.output = os.pipe()
        self._folder = folder
        self._secrets = sorted((s.encode() for s in secrets if len(s) >= _SHORTEST_SECRET), key=len, reverse=True)
        self._part_bytes = part_bytes
        self._left = run_bytes
        self._lock = threading.Lock()
        self._full: deque[Path] = deque()
        self._tail = bytearray()
        self._part = 0
        self._part_size = 0
        self._thread = threading.Thread(target=self._pump, name="run-log", daemon=True)
        folder.mkdir(mode=0o700)
        self._thread.start()

    def child_has_it(self) -> None:
        """The child is started (or never will be): close our copy of its end, so that its end is seen."""
        os.close(self.output)

    def finish(self) -> None:
        """Wait until everything that the child and its descendants wrote is kept."""
        self._thread.join()

    def full_parts(self) -> list[Path]:
        """Parts that are complete and not given out yet; after ``finish()`` the last one too."""
        with self._lock:
            parts = list(self._full)
            self._full.clear()
        return parts

    def tail(self) -> str:
        """The last 64 KB."""
        with self._lock:
            return bytes(self._tail).decode(errors="replace")

    def _pump(self) -> None:
        kept = b""
        with os.fdopen(self._reader, "rb", buffering=0) as stream:
            while chunk := stream.read(_READ_BYTES):
                lines, newline, kept = (kept + chunk).rpartition(b"\n")
                if len(kept) > LOG_LINE_BYTES:  # a line without end is cut; a secret across the cut stays rare
                    lines, newline, kept = lines + newline + kept, b"", b""
                self._keep(self._masked(lines + newline))
        self._keep(self._masked(kept))
        with self._lock:
            if self._part_size:
                self._full.append(self._path())

    def _masked(self, text: bytes) -> bytes:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return text

    def _keep(self, text: bytes) -> None:
        if not text or self._left <= 0:
            return
        self._left -= len(text)
        if self._left <= 0:
            text += _DROPPED
        with self._lock:
            self._tail += text
            del self._tail[:-TOOL_OUTPUT_BYTES]
        try:
            self._write(text)
        except OSError as error:  # a full disk must not stop the reading, or the child would hang
            _LOGGER.warning("the log of a run cannot be kept: %s", error)
            self._left = 0

    def _write(self, text: bytes) -> None:
        if not self._part_size:
            self._part += 1
        with self._path().open("ab") as part:
            part.write(text)
        self._part_size += len(text)
        if self._part_size >= self._part_bytes:
            with self._lock:
                self._full.append(self._path())
            self._part_size = 0

    def _path(self) -> Path:
        return self._folder / f"{self._part:04d}.log"
