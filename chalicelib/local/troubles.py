"""Say once that a part fails, and once that it works again; keep the tracebacks in the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ..kernel.errors import TidemillError

Say = Callable[[str], None]

_LOGGER = logging.getLogger("tidemill.local")


class Troubles:
    """What fails at present, by part."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._failing: dict[str, int] = {}

    def failed(self, part: str, error: Exception) -> int:
        """Note a failure; it is said only when the part worked before. Returns how many came in a row."""
        with self._lock:
            count = self._failing[part] = self._failing.get(part, 0) + 1
        if count == 1:
            _LOGGER.error("%s failed", part, exc_info=error)
            detail = error.detail if isinstance(error, TidemillError) else f"{type(error).__name__}: {error}"
            self._say(f"{part} failed and will be tried again: {detail}")
        return count

    def worked(self, part: str) -> None:
        """Note a success; it is said when the part failed before."""
        with self._lock:
            failures = self._failing.pop(part, 0)
        if failures:
            self._say(f"{part} works again after {failures} failed attempts")
