"""The thread that moves a boot's counter. It shares no thread, pool or loop with the work (scheduler.md 9)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ..kernel.clock import Clock
from ..kernel.limits import BEAT_RETRY_FIRST_SECONDS
from .boots import BeatAnswer, BootLease, LeaseClosed

_LOGGER = logging.getLogger("tidemill.leases")
_DOUBLINGS = 10


class BeatThread:
    """Beats until closed. ``deliver`` gets every answer on the beat's own thread, so it must only set flags.

    A failed beat is repeated with a growing wait and never stops anything (S40); an answer that says ``lost`` is
    delivered and ends the thread.
    """

    def __init__(
        self, lease: BootLease, deliver: Callable[[BeatAnswer], None], *, clock: Clock, beat_seconds: float
    ) -> None:
        self._lease = lease
        self._deliver = deliver
        self._clock = clock
        self._beat_seconds = beat_seconds
        self._closed = threading.Event()
        self._last_beat_at = clock.elapsed_seconds()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=f"beat-{lease.boot_id}", daemon=True)

    def start(self) -> None:
        """Start beating; refused after ``close()``."""
        if self._closed.is_set():
            raise LeaseClosed("the beat thread is closed")
        self._thread.start()

    def close(self) -> None:
        """Stop and join; returns when no further beat can be sent. Repeating it is fine."""
        self._closed.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def seconds_since_beat(self) -> float:
        """The age of the last answered beat, measured from before it was sent."""
        return self._clock.elapsed_seconds() - self._last_beat_at

    def _run(self) -> None:
        while not self._closed.wait(self._wait_seconds()):
            # Taken before sending: the observer may have seen the counter from then on.
            sent_at = self._clock.elapsed_seconds()
            answer = self._beat()
            if answer is None:
                continue
            self._last_beat_at = sent_at
            try:
                self._deliver(answer)
            except Exception:  # whoever listens must not end the beats
                _LOGGER.exception("the answer of a beat was not delivered")
            if answer.lost is not None:
                return

    def _beat(self) -> BeatAnswer | None:
        try:
            answer = self._lease.beat()
        except Exception as error:  # noqa: BLE001 - no failure stops work
            self._failures += 1
            _LOGGER.warning("beat %d in a row failed: %s", self._failures, error)
            return None
        self._failures = 0
        return answer

    def _wait_seconds(self) -> float:
        if self._failures == 0:
            return self._beat_seconds
        return min(self._beat_seconds, BEAT_RETRY_FIRST_SECONDS * float(1 << min(self._failures - 1, _DOUBLINGS)))
