"""Stream a run's node reports and log parts while its child works, on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from ..kernel.errors import TidemillError
from ..kernel.limits import LAST_JOIN_SECONDS, NODES_PER_REPORT, REPORT_EVERY_SECONDS
from ..runs.model import NodeReport, Report
from .logs import RunLog
from .masking import Mask
from .runners.documents import LiveRecords
from .runners.plan import Launch, Runner
from .server import Verdict, verdict_of
from .session import ClaimSession, GaveUp

_LOGGER = logging.getLogger("tidemill.worker")
_OVER = frozenset({"claim_lost", "cancelled"})
_SKIPPED_MAX = 60
_LOOK_SECONDS = 0.2


class Delivery:
    """One run's stream to the server.

    Batches are numbered and their content never changes, so that a repeat after a lost answer is the same report. A
    node is reported again when more becomes known of it; the newer row replaces the older. What cannot be sent now is
    kept and sent later, in its order. ``on_over`` is told when the claim has ended (``claim_lost``, ``cancelled``); any
    other refusal stops nothing (S40). ``ends`` ends the waits between repeats when the worker must end.
    """

    def __init__(
        self,
        session: ClaimSession,
        runner: Runner,
        launch: Launch,
        log: RunLog,
        *,
        known_nodes: Collection[str],
        on_over: Callable[[Verdict], None],
        ends: threading.Event,
        mask: Mask | None = None,
        every_seconds: float = REPORT_EVERY_SECONDS,
        last_join_seconds: float = LAST_JOIN_SECONDS,
    ) -> None:
        self._session = session
        self._runner = runner
        self._records = LiveRecords(launch.live_records)
        self._log = log
        self._known = frozenset(known_nodes)
        self._on_over = on_over
        self._ends = ends
        self._mask = mask or Mask()
        self._every_seconds = every_seconds
        self._last_join_seconds = last_join_seconds
        self._finishing = threading.Event()
        self._last_nodes: tuple[NodeReport, ...] = ()
        self._seen: dict[str, NodeReport] = {}
        self._pending: dict[str, NodeReport] = {}
        self._batches = 0
        self._parts: deque[Path] = deque()
        self._log_failures = self._log_skips = 0
        self._open = True
        self._thread = threading.Thread(target=self._run, name=f"delivery-{session.run_id}", daemon=True)

    def start(self) -> None:
        """Begin to stream."""
        self._thread.start()

    def finish(self, nodes: Iterable[NodeReport] = ()) -> int:
        """Send what is left and ``nodes``; returns how many different nodes were seen. Call it once.

        When the worker must end, a call that is on its way is left behind after ``last_join_seconds``.
        """
        self._last_nodes = tuple(nodes)
        self._finishing.set()
        while self._thread.is_alive() and not self._ends.is_set():
            self._thread.join(_LOOK_SECONDS)
        self._thread.join(self._last_join_seconds)
        return len(self._seen)

    def _run(self) -> None:
        while not self._finishing.wait(self._every_seconds):
            self._step()
        # The file may hold more than one read takes.
        while self._collect(self._parsed()):
            pass
        self._collect(self._last_nodes)
        self._send_nodes()
        self._send_last_log()

    def _step(self) -> None:
        self._collect(self._parsed())
        self._send_nodes()
        self._send_log()

    def _parsed(self) -> Iterator[NodeReport | None]:
        """A record that the tool broke says nothing; it stops nothing either."""
        for record in self._read():
            try:
                yield self._runner.parse_record(record)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                _LOGGER.warning("run %s: a live record cannot be read: %s", self._session.run_id, error)
                yield None

    def _read(self) -> Iterator[Mapping[str, Any]]:
        try:
            yield from self._records.read()
        except OSError as error:
            _LOGGER.warning("run %s: its live records cannot be read: %s", self._session.run_id, error)

    def _collect(self, reports: Iterable[NodeReport | None]) -> int:
        found = 0
        for report in reports:
            found += 1
            if report is not None and report.node in self._known:
                merged = _merged(self._seen.get(report.node), self._mask.of_report(report))
                self._seen[report.node] = self._pending[report.node] = merged
        return found

    def _send_nodes(self) -> None:
        while self._open and self._pending:
            batch = [self._pending.pop(node) for node in list(self._pending)[:NODES_PER_REPORT]]
            self._batches += 1
            key = self._session.key_of("nodes", self._batches)
            try:
                self._session.report(Report(report_key=key, kind="nodes", nodes=batch), self._ends)
            except GaveUp as gave_up:
                _LOGGER.warning("run %s: node reports are kept no longer: %s", self._session.run_id, gave_up)
                self._open = False
            except TidemillError as error:
                _LOGGER.warning("run %s: a node report was refused: %s", self._session.run_id, error.detail)
                self._notice(verdict_of(error))

    def _notice(self, verdict: Verdict) -> None:
        """Stop the run when its claim is over; a report that was refused for itself is passed over."""
        if verdict in _OVER:
            self._open = False
            self._on_over(verdict)

    # --- the log is worth every try, never a run

    def _send_log(self) -> None:
        """Send the parts that are full; when that fails they wait, each time for longer."""
        self._parts.extend(self._log.full_parts())
        self._log_skips -= 1
        if self._log_skips > 0:
            return
        while self._parts:
            if not self._uploaded(self._parts[0]):
                self._log_failures += 1
                self._log_skips = min(1 << self._log_failures, _SKIPPED_MAX)
                return
            self._log_failures = 0
            self._parts.popleft().unlink(missing_ok=True)

    def _send_last_log(self) -> None:
        """All that is left: a server that is away is waited for, as its answer to the end is; a store is not."""
        self._parts.extend(self._log.full_parts())
        while self._parts and self._uploaded(self._parts[0], self._ends):
            self._parts.popleft().unlink(missing_ok=True)
        if self._parts:
            names = ", ".join(part.name for part in self._parts)
            _LOGGER.warning("run %s: these log parts are not stored: %s", self._session.run_id, names)

    def _uploaded(self, part: Path, ends: threading.Event | None = None) -> bool:
        try:
            self._session.upload_log(part.name, part.read_bytes(), ends)
        except (TidemillError, OSError, httpx.HTTPError, GaveUp) as error:
            _LOGGER.warning("run %s: log part %s is not stored yet: %s", self._session.run_id, part.name, error)
            return False
        return True


def _merged(earlier: NodeReport | None, report: NodeReport) -> NodeReport:
    """The newer report, with what only the earlier one knew."""
    if earlier is None:
        return report
    known = {name: value for name, value in report.model_dump().items() if value is not None}
    return earlier.model_copy(update=known)
