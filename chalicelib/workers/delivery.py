"""Stream a run's node reports and log parts while its child works, on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import httpx

from ..kernel.errors import TidemillError
from ..kernel.limits import NODES_PER_REPORT, REPORT_EVERY_SECONDS
from ..runs.model import NodeReport, Report
from .logs import RunLog
from .runners.documents import LiveRecords
from .runners.plan import Launch, Runner
from .session import ClaimSession, GaveUp

_LOGGER = logging.getLogger("tidemill.worker")


class Delivery:
    """One run's stream to the server.

    Batches are numbered and their content never changes, so that a repeat after a lost answer is the same report. A
    node is reported again when more becomes known of it; the newer row replaces the older. ``on_refused`` is told when
    the server takes no more of this claim. ``ends`` ends the waits between repeats when the worker must end.
    """

    def __init__(
        self,
        session: ClaimSession,
        runner: Runner,
        launch: Launch,
        log: RunLog,
        *,
        known_nodes: Collection[str],
        on_refused: Callable[[], None],
        ends: threading.Event,
        every_seconds: float = REPORT_EVERY_SECONDS,
    ) -> None:
        self._session = session
        self._runner = runner
        self._records = LiveRecords(launch.live_records)
        self._log = log
        self._known = frozenset(known_nodes)
        self._on_refused = on_refused
        self._ends = ends
        self._every_seconds = every_seconds
        self._finishing = threading.Event()
        self._last_nodes: tuple[NodeReport, ...] = ()
        self._seen: dict[str, NodeReport] = {}
        self._pending: dict[str, NodeReport] = {}
        self._batches = 0
        self._open = True
        self._thread = threading.Thread(target=self._run, name=f"delivery-{session.run_id}", daemon=True)

    def start(self) -> None:
        """Begin to stream."""
        self._thread.start()

    def finish(self, nodes: Iterable[NodeReport] = ()) -> int:
        """Send what is left and ``nodes``; returns how many different nodes were seen. Call it once."""
        self._last_nodes = tuple(nodes)
        self._finishing.set()
        self._thread.join()
        return len(self._seen)

    def _run(self) -> None:
        while not self._finishing.wait(self._every_seconds):
            self._step()
        # The file may hold more than one read takes.
        while self._collect(self._parsed()):
            pass
        self._collect(self._last_nodes)
        self._step()

    def _step(self) -> None:
        self._collect(self._parsed())
        self._send_nodes()
        self._send_log()

    def _parsed(self) -> Iterator[NodeReport | None]:
        """A record that the tool broke says nothing; it stops nothing either."""
        for record in self._records.read():
            try:
                yield self._runner.parse_record(record)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                _LOGGER.warning("run %s: a live record cannot be read: %s", self._session.run_id, error)
                yield None

    def _collect(self, reports: Iterable[NodeReport | None]) -> int:
        found = 0
        for report in reports:
            found += 1
            if report is not None and report.node in self._known:
                merged = _merged(self._seen.get(report.node), report)
                self._seen[report.node] = self._pending[report.node] = merged
        return found

    def _send_nodes(self) -> None:
        while self._open and self._pending:
            batch = list(self._pending.values())[:NODES_PER_REPORT]
            self._pending = {node: report for node, report in self._pending.items() if report not in batch}
            self._batches += 1
            key = self._session.key_of("nodes", self._batches)
            try:
                self._session.report(Report(report_key=key, kind="nodes", nodes=batch), self._ends)
            except (TidemillError, GaveUp) as error:
                _LOGGER.warning("run %s: node reports are not taken any more: %s", self._session.run_id, error)
                self._open = False
                if isinstance(error, TidemillError):
                    self._on_refused()

    def _send_log(self) -> None:
        for part in self._log.full_parts():
            self._upload(part)

    def _upload(self, part: Path) -> None:
        """The log is worth a try, never a run: a store that is down is written down and passed over."""
        try:
            self._session.upload_log(part.name, part.read_bytes())
        except (TidemillError, OSError, httpx.HTTPError) as error:
            _LOGGER.warning("run %s: log part %s is not stored: %s", self._session.run_id, part.name, error)


def _merged(earlier: NodeReport | None, report: NodeReport) -> NodeReport:
    """The newer report, with what only the earlier one knew."""
    if earlier is None:
        return report
    known = {name: value for name, value in report.model_dump().items() if value is not None}
    return earlier.model_copy(update=known)
