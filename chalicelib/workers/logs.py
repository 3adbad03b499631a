"""The log of one run: what the child prints, masked, cut into parts, bounded.

The child writes into a pipe that this thread empties, so that a talkative program can fill neither memory nor disk:
after ``LOG_RUN_BYTES`` the rest is read and dropped, and the log says so. It lies outside the child's own folder, where
a child that runs as another user could put a link in its place.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from ..kernel.limits import LOG_CLOSE_SECONDS, LOG_LINE_BYTES, LOG_PART_BYTES, LOG_RUN_BYTES, TOOL_OUTPUT_BYTES
from .masking import Mask

_LOGGER = logging.getLogger("tidemill.worker")
_READ_BYTES = 64 * 1024
_DROPPED = b"\n[the log is full; what follows was dropped]\n"


class RunLog:
    """A thread that empties the child's output into ``folder``; ``output`` is the descriptor for the child."""

    def __init__(
        self,
        folder: Path,
        mask: Mask | None = None,
        *,
        part_bytes: int = LOG_PART_BYTES,
        run_bytes: int = LOG_RUN_BYTES,
        close_seconds: float = LOG_CLOSE_SECONDS,
    ) -> None:
        folder.mkdir(mode=0o700)
        self._folder = folder
        self._mask = mask or Mask()
        self._close_seconds = close_seconds
        self._reader, self.output = os.pipe()
        self._done_reader, self._done = os.pipe()
        self._part_bytes = part_bytes
        self._left = run_bytes
        self._lock = threading.Lock()
        self._full: deque[Path] = deque()
        self._tail = bytearray()
        self._part = 0
        self._part_size = 0
        self._thread = threading.Thread(target=self._pump, name="run-log", daemon=True)
        self._thread.start()

    def child_has_it(self) -> None:
        """The child is started (or never will be): close our copy of its end, so that its end is seen."""
        os.close(self.output)

    def finish(self) -> None:
        """Wait until everything that the child and its descendants wrote is kept. Call it once.

        They have ended, so the pipe is closed; something that nobody owns any more could still hold it, and is not
        waited for longer than ``close_seconds``.
        """
        self._thread.join(self._close_seconds)
        os.close(self._done)
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
        for chunk in self._chunks():
            kept = self._mask.of_bytes(kept + chunk)
            cut = kept.rfind(b"\n") + 1
            if len(kept) - cut > LOG_LINE_BYTES:
                # A line without end is cut, but never in what may be the beginning of a secret.
                cut = max(cut, len(kept) - self._mask.overlap)
            self._keep(kept[:cut])
            kept = kept[cut:]
        self._keep(self._mask.of_bytes(kept))
        with self._lock:
            if self._part_size:
                self._full.append(self._path())

    def _chunks(self) -> Iterator[bytes]:
        """What is written until every writer has closed, or nothing more is waited for."""
        poll = select.poll()
        for descriptor in (self._reader, self._done_reader):
            poll.register(descriptor, select.POLLIN)
        try:
            while self._reader in dict(poll.poll()):
                chunk = os.read(self._reader, _READ_BYTES)
                if not chunk:
                    return
                yield chunk
        finally:
            os.close(self._reader)
            os.close(self._done_reader)

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
