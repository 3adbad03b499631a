"""The real history of an installation, played before the simulator's checkers.

The store's events, in an order in which they can have been committed, and the warehouse's own log, by one clock, become
a sequence of commits. Each shows the runs, and what follows from their states, as they stood then.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from chalicelib.projects.bundle import JobDefinition
from tests.simulation.answers import Answers
from tests.simulation.checkers.base import Checker
from tests.simulation.checkers.end_state import check_end
from tests.simulation.checkers.pools import PoolChecker
from tests.simulation.checkers.retries import RetryChecker
from tests.simulation.checkers.states import StateChecker
from tests.simulation.checkers.writers import WriterChecker
from tests.simulation.clock import WorldClock
from tests.simulation.database import Commit
from tests.simulation.view import Row, StoreView
from tests.simulation.violations import Violation
from tests.simulation.warehouses import Warehouses, Writer
from tests.simulation.world import World

from .filling import Connection

_ACTIVE = ("claimed", "running")
_STATE_AFTER = {"queued": "queued", "claimed": "claimed", "started": "running"}
# What a run has only from a later event on.
_LATER: Mapping[str, Any] = {
    "end_reason": None, "reported_outcome": None, "cancel_requested_at": None, "cancel_id": None, "finished_at": None,
    "heartbeat_lost_at": None, "resolve_id": None,
}  # fmt: skip
_FOR_EVER_DAYS = 365
_CANCEL = ("cancel_requested_at", "cancel_id")


@dataclass(frozen=True, slots=True)
class Moment:
    """What one transaction or the warehouse told, and when."""

    at: datetime
    events: Sequence[Row] = ()
    told: Mapping[str, Any] | None = None


class _View(dict[str, list[Row]]):
    """Tables by name, as ``StoreView`` shows them; what is not replayed stands as it does at the end."""

    def __init__(self, store: StoreView) -> None:
        super().__init__()
        self._store = store

    def __missing__(self, table: str) -> list[Row]:
        return self._store[table]

    def run(self, run_id: str) -> Row | None:
        return next((row for row in self["runs"] if row["run_id"] == run_id), None)


class Replay:
    """A world of the checkers that stands still between the moments of a real history."""

    def __init__(self, connection: Connection, warehouse_log: Path, answers: Answers, *, slots: int) -> None:
        store = StoreView(connection)
        self._final = {row["run_id"]: row for row in store["runs"]}
        self._definitions = _definitions(connection)
        self._warehouses = {
            (row["location"], row["target"]): (row["warehouse"], row["settle_seconds"])
            for row in connection.execute(_TARGETS)
        }
        self._claims = {row["claim_id"]: row for row in store["claims"]}
        self._moments = sorted([*_transactions(connection), *_told(warehouse_log)], key=lambda moment: moment.at)
        self._limits = {row["pool"]: row["slot_limit"] for row in store["pools"]} | {"worker:container": slots}
        self._runs: dict[str, Row] = {}
        self._settling: dict[tuple[str, str], tuple[str, datetime]] = {}
        self._begun: set[str] = set()
        start = self._moments[0].at if self._moments else datetime.now(UTC)
        self.clock = WorldClock(start)
        self.warehouses = Warehouses(self.clock)
        self.answers = answers
        self.view = _View(store)
        self._derive()
        versions = _versions(connection, self._definitions)
        self.scenario = SimpleNamespace(start=start, versions=versions, kept_days=_FOR_EVER_DAYS)

    # --- what checkers ask of a world

    def definition(self, snapshot_id: str, job: str) -> JobDefinition:
        """A job as a snapshot has it."""
        return self._definitions[snapshot_id, job]

    def pool_limits(self) -> Mapping[str, int]:
        """What each pool allows."""
        return self._limits

    def store_now(self) -> datetime:
        """The time of the history."""
        return self.clock.now()

    # --- the history

    def check(self) -> int:
        """Play it all; how many moments there were. Raises ``Violation``."""
        world = cast("World", self)
        checkers: list[Checker] = [kind(world) for kind in (StateChecker, PoolChecker, WriterChecker, RetryChecker)]
        for moment in self._moments:
            self.clock.advance(max(0.0, (moment.at - self.clock.now()).total_seconds()))
            if moment.told is not None:
                self._hear(moment.told)
            else:
                self._commit(moment, checkers)
        self._check_end(world)
        return len(self._moments)

    def _commit(self, moment: Moment, checkers: Sequence[Checker]) -> None:
        for event in moment.events:
            self._apply(event, moment.at)
        self._derive()
        commit = Commit(moment.at, "soak", tables={"runs", "slots", "write_claims"})
        for checker in checkers:
            checker.after_commit(commit)

    def _apply(self, event: Row, at: datetime) -> None:
        run_id, kind, final = event["run_id"], event["kind"], self._final[event["run_id"]]
        before = self._runs.get(run_id, {**final, **_LATER, "status": None})
        if kind in _STATE_AFTER:
            self._runs[run_id] = {**before, "status": _STATE_AFTER[kind]}
        elif kind == "cancel_requested":
            self._runs[run_id] = {**before, **{name: final[name] for name in _CANCEL}}
        elif kind == "ended":
            self._runs[run_id] = final
            self._end(before, event["payload"], at)
        if kind == "claimed":
            self._check_settled(final, at)

    def _end(self, before: Row, told: Mapping[str, Any], at: datetime) -> None:
        """What its process still does is over; a warehouse may go on for the settle time of a run that was lost."""
        self.warehouses.stop(before["run_id"])
        warehouse, seconds = self._warehouses[before["location"], before["target"]]
        if told.get("end_reason") == "lost" and before["status"] == "running":
            for relation in self._relations(before):
                self._settling[warehouse, relation] = before["run_id"], at + timedelta(seconds=seconds)

    def _check_settled(self, run: Row, at: datetime) -> None:
        warehouse, _ = self._warehouses[run["location"], run["target"]]
        for relation in self._relations(run):
            lost, until = self._settling.get((warehouse, relation), ("", at))
            if until > at:
                raise Violation("C3", f"{run['run_id']} got {relation} at {at}, which settles for {lost} until {until}")

    def _derive(self) -> None:
        active = [row for row in self._runs.values() if row["status"] in _ACTIVE]
        self.view["runs"] = list(self._runs.values())
        self.view["slots"] = [slot for row in active for slot in self._slots(row)]
        self.view["write_claims"] = [
            {
                "warehouse": self._warehouses[row["location"], row["target"]][0],
                "relation": name,
                "run_id": row["run_id"],
            }
            for row in active
            for name in self._relations(row)
        ]

    def _slots(self, row: Row) -> Iterator[Row]:
        definition = self.definition(row["snapshot_id"], row["job"])
        yield {"pool": f"worker:{definition.worker}", "run_id": row["run_id"], "weight": 1}
        yield from ({"pool": pool.name, "run_id": row["run_id"], "weight": pool.weight} for pool in definition.pools)

    def _relations(self, row: Row) -> Sequence[str]:
        return self.definition(row["snapshot_id"], row["job"]).relations

    # --- the warehouse

    def _hear(self, told: Mapping[str, Any]) -> None:
        run = self._runs.get(told["run_id"])
        if told["what"] == "clash":
            raise Violation("C3", f"{told['run_id']} found a relation of {told['relations']} locked by another writer")
        if run is None or run["status"] != "running":
            raise Violation("C3", f"{told['run_id']} is {run and run['status']}, and its program told: {told}")
        claim = self._claims[told["claim_id"]]
        if told["what"] == "end":
            self.warehouses.end(claim["claim_id"], claim["boot_id"])
            return
        if told["run_id"] in self._begun:
            raise Violation("C3", f"{told['run_id']} was begun twice")
        self._begun.add(told["run_id"])
        warehouse, _ = self._warehouses[run["location"], run["target"]]
        self.warehouses.begin(
            Writer(claim["claim_id"], claim["boot_id"], run["run_id"], warehouse, frozenset(told["relations"]))
        )

    # --- the end

    def _check_end(self, world: World) -> None:
        if self._runs != self._final:
            differ = sorted(run_id for run_id, row in self._final.items() if self._runs.get(run_id) != row)
            raise Violation("C5", f"the events tell another end than the rows, of {differ}")
        self.view.clear()
        check_end(world)
        self._check_answered()
        self._check_began()
        _check_occurrences(self.view["ticks"])

    def _check_answered(self) -> None:
        for kind, key, answer in self.answers.given():
            if kind in {"request", "rerun"} and (row := self._final.get(key)) is None:
                raise Violation("C8", f"{kind} {key} was answered with {answer}, and there is {row}")

    def _check_began(self) -> None:
        for run_id, row in self._final.items():
            if row["status"] == "succeeded" and run_id not in self._begun:
                raise Violation("C5", f"{run_id} succeeded, and its program was never started")


def _check_occurrences(ticks: Sequence[Row]) -> None:
    """A schedule of every minute: between its first and last tick each minute has one, or is counted as skipped."""
    for trigger, found in itertools.groupby(ticks, key=itemgetter("trigger_id")):
        rows = sorted(found, key=itemgetter("scheduled_for"))
        minutes = round((rows[-1]["scheduled_for"] - rows[0]["scheduled_for"]).total_seconds() / 60) + 1
        counted = len(rows) + sum(row["skipped"] for row in rows[1:])
        if counted != minutes:
            raise Violation("C2", f"{trigger} was due {minutes} times; {len(rows)} ticks count {counted} of them")


def _transactions(connection: Connection) -> Iterator[Moment]:
    """Events of one transaction have its time, which is that of its beginning; in the order of their last numbers.

    Whoever has seen what another committed has written a later number since. So a transaction that began before another,
    and waited for it, stands behind it, and no earlier than it.
    """
    rows = connection.execute(_EVENTS).fetchall()
    together: dict[datetime, list[Row]] = {}
    for row in rows:
        together.setdefault(row["occurred_at"], []).append(row)
    latest = datetime.min.replace(tzinfo=UTC)
    for at, events in sorted(together.items(), key=lambda found: found[1][-1]["seq"]):
        latest = max(latest, at)
        yield Moment(latest, events)


def _told(log: Path) -> Iterator[Moment]:
    if not log.exists():
        return
    for line in log.read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        yield Moment(datetime.fromtimestamp(told["at"], UTC), told=told)


def _definitions(connection: Connection) -> dict[tuple[str, str], JobDefinition]:
    return {
        (row["snapshot_id"], row["job"]): JobDefinition.model_validate(row["definition"])
        for row in connection.execute(_JOBS)
    }


def _versions(connection: Connection, definitions: Mapping[tuple[str, str], JobDefinition]) -> Mapping[Any, Any]:
    """The published versions of each target, as a scenario has them."""
    found: dict[tuple[str, str], list[Any]] = {}
    for row in connection.execute(_PUBLISHED):
        jobs = {
            job: definition for (snapshot, job), definition in definitions.items() if snapshot == row["snapshot_id"]
        }
        version = SimpleNamespace(index=SimpleNamespace(jobs=jobs))
        found.setdefault((row["location"], row["target"]), []).append(version)
    return found


_EVENTS = b"SELECT seq, run_id, kind, occurred_at, payload FROM run_events ORDER BY seq"
_JOBS = b"SELECT snapshot_id, job, definition FROM snapshot_jobs"
_TARGETS = b"SELECT location, target, warehouse, settle_seconds FROM targets"
_PUBLISHED = b"SELECT DISTINCT location, target, snapshot_id FROM publications"
