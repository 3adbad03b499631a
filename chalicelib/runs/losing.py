"""What silence does to runs: it marks them, and only a proof, or never having started, ends them (scheduler.md 9).

Every decision is made again under the row lock of its run, so a run that ended, or was heard of, between the observation
and the write is left alone (S35, S44). All of this runs in fenced transactions of whoever leads a shard; the boots that
the shard watches may carry runs of other shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..alerts import AlertFact, close_alerts, open_alerts
from ..database import Database, Transaction, Write, load_queries
from ..database.connection import json_rows
from ..kernel.ids import IdSource
from ..kernel.limits import LOST_PER_BATCH, MARKED_READ_MAX
from ..leases.lowering import HintLowering, never
from .ending import end_gone, end_runs, never_started
from .proofs import proved_ends
from .queueing import NewEvent, append_events
from .states import ACTIVE

QUERIES = load_queries(__package__, "losing.sql")

Row = Mapping[str, Any]
# What an alert about a run says of it: who may read the run may read the alert.
_PLACE = ("location", "target", "job")


@dataclass(frozen=True, slots=True)
class WatchedBoot:
    """A boot with an accepted claim: where its item is, and how its runs stand."""

    boot_id: str
    partition: int
    unmarked: bool
    marked: bool
    unstarted: bool


@dataclass(frozen=True, slots=True)
class EndedClaim:
    """A claim that ended over the head of its boot, which must be told to stop."""

    run_id: str
    claim_id: str
    boot_id: str
    partition: int


class Losses:
    """Use cases of losing runs and hearing of them again; each takes the fenced writer of whoever leads.

    Each works in batches; ``go_on`` is asked before each one and raises when there is no time left.
    """

    def __init__(self, database: Database, ids: IdSource, lowering: HintLowering) -> None:
        self._database = database
        self._ids = ids
        self._lowering = lowering

    # --- reading; no lock, so only to see whether there is something to do

    def watched(self, partitions: Sequence[int]) -> list[WatchedBoot]:
        """The boots of these partitions that have an accepted claim."""
        with self._database.transaction() as tx:
            rows = tx.rows(QUERIES["watched_boots"], partitions=list(partitions))
        return [
            WatchedBoot(r["boot_id"], r["boot_partition"], r["unmarked"], r["marked"], r["unstarted"]) for r in rows
        ]

    def proved(self, partitions: Sequence[int]) -> set[str]:
        """The boots of marked, started runs whose process is proved to have ended."""
        with self._database.transaction() as tx:
            rows = tx.rows(QUERIES["marked_started"], partitions=list(partitions), most=MARKED_READ_MAX)
            return {proof.boot_id for proof in proved_ends(rows, tx.now)}

    def without_claims(self, boots: Sequence[str]) -> set[str]:
        """Those of the boots that carry no run any more."""
        with self._database.transaction() as tx:
            return set(boots) - carries_runs(tx, boots)

    def ended_at_work(self, working: Mapping[str, frozenset[str]]) -> list[EndedClaim]:
        """Claims that have ended although their boot (key) still has a process of their run (value)."""
        rows = [{"boot_id": boot, "run_id": run} for boot, runs in sorted(working.items()) for run in sorted(runs)]
        if not rows:
            return []
        with self._database.transaction() as tx:
            found = tx.rows(QUERIES["ended_claims_at_work"], rows=json_rows(rows))
        return [EndedClaim(r["run_id"], r["claim_id"], r["boot_id"], r["boot_partition"]) for r in found]

    # --- writing

    def lose(self, write: Write, boots: Mapping[str, int | None], go_on: Callable[[], None]) -> int:
        """Mark the runs of silent boots (with their counters); returns how many. Marking twice changes nothing."""
        pages = self._pages(write, sorted(boots), "mark", lambda tx, rows: _mark(tx, self._ids, rows, boots), go_on)
        return sum(len(page) for page in pages)

    def hear(self, write: Write, boots: Mapping[str, int], go_on: Callable[[], None]) -> int:
        """Clear the marks of the runs of boots that were heard of again; returns how many."""
        pages = self._pages(write, sorted(boots), "clear", lambda tx, rows: _clear(tx, self._ids, rows, boots), go_on)
        return sum(len(page) for page in pages)

    def end_unstarted(self, write: Write, boots: Sequence[str], go_on: Callable[[], None]) -> list[EndedClaim]:
        """End the marked runs of these boots that never started: that needs no proof, and all they hold goes at once."""

        def end(tx: Transaction, rows: Sequence[Row]) -> list[Row]:
            ended = end_runs(tx, self._ids, [never_started(row, "lost_before_start") for row in rows], settled=True)
            return _closed(tx, rows, ended)

        return [_claim(row) for page in self._pages(write, sorted(boots), "unstarted", end, go_on) for row in page]

    def end_proved(self, write: Write, boots: Sequence[str], go_on: Callable[[], None]) -> list[EndedClaim]:
        """End the marked, started runs of these boots whose process is proved to have ended, with their settle time."""

        def end(tx: Transaction, rows: Sequence[Row]) -> list[Row]:
            gone = {proof.claim_id for proof in proved_ends(rows, tx.now)}
            proved = [row for row in rows if row["claim_id"] in gone]
            return _closed(tx, proved, end_gone(tx, self._ids, proved))

        return [_claim(row) for page in self._pages(write, sorted(boots), "proved", end, go_on) for row in page]

    def _pages(
        self,
        write: Write,
        boots: Sequence[str],
        step: Literal["mark", "clear", "unstarted", "proved"],
        change: Callable[[Transaction, Sequence[Row]], list[Row]],
        go_on: Callable[[], None],
    ) -> Iterator[list[Row]]:
        """Lock and change the runs of the boots, at most 50 a transaction, until a batch is not full (S11)."""
        states = {"unstarted": ["claimed"], "proved": ["running"]}.get(step, sorted(ACTIVE))
        ends = step in {"unstarted", "proved"}
        concerned = "shards_beside_boots" if ends else "shards_of_boots"
        last = ""
        while boots:
            go_on()

            def one(tx: Transaction, after: str = last) -> tuple[list[Row], list[Row]]:
                rows = tx.rows(
                    QUERIES["lock_runs_of_boots"],
                    boots=list(boots),
                    states=states,
                    marked=step != "mark",
                    after=after,
                    batch=LOST_PER_BATCH,
                )
                return list(rows), change(tx, rows) if rows else []

            rows, changed = self._lowering.lowered(
                lambda tx: [row["shard"] for row in tx.rows(QUERIES[concerned], boots=list(boots))],
                one,
                wakes=(lambda result: bool(result[1])) if ends else never,
                write=write,
            )
            yield changed
            if len(rows) < LOST_PER_BATCH:
                return
            last = rows[-1]["run_id"]


# --- transactions


def carries_runs(tx: Transaction, boots: Sequence[str]) -> set[str]:
    """Those of the boots that have a claim which has not ended."""
    return {row["boot_id"] for row in tx.rows(QUERIES["boots_with_claims"], boots=list(boots))}


def heard_by_report(tx: Transaction, ids: IdSource, run_id: str, claim_id: str) -> bool:
    """A report was accepted under a live claim whose run was marked: somebody is there after all. Whether it cleared it.

    The alert closes with the next platform scan, for only fenced transactions write alerts.
    """
    heard = tx.row(QUERIES["clear_lost_of_claim"], run_id=run_id, claim_id=claim_id) is not None
    if heard:
        append_events(tx, ids, [NewEvent(run_id, "heartbeat_recovered", {"claim_id": claim_id, "by": "report"})])
    return heard


def _mark(tx: Transaction, ids: IdSource, rows: Sequence[Row], boots: Mapping[str, int | None]) -> list[Row]:
    tx.execute(QUERIES["mark_lost"], run_ids=[row["run_id"] for row in rows])
    told = [{"claim_id": r["claim_id"], "boot_id": r["boot_id"], "counter": boots[r["boot_id"]]} for r in rows]
    append_events(
        tx, ids, [NewEvent(row["run_id"], "heartbeat_lost", fact) for row, fact in zip(rows, told, strict=True)]
    )
    facts = [
        AlertFact("run_lost", r["run_id"], {**fact, **{name: r[name] for name in _PLACE}}, r["claim_id"])
        for r, fact in zip(rows, told, strict=True)
    ]
    open_alerts(tx, facts)
    _note(tx, "lost", {row["boot_id"]: boots[row["boot_id"]] for row in rows})
    return list(rows)


def _clear(tx: Transaction, ids: IdSource, rows: Sequence[Row], boots: Mapping[str, int]) -> list[Row]:
    run_ids = [row["run_id"] for row in rows]
    tx.execute(QUERIES["clear_lost"], run_ids=run_ids)
    append_events(
        tx,
        ids,
        [NewEvent(row["run_id"], "heartbeat_recovered", {"claim_id": row["claim_id"], "by": "beat"}) for row in rows],
    )
    close_alerts(tx, "run_lost", run_ids)
    _note(tx, "recovered", {row["boot_id"]: boots[row["boot_id"]] for row in rows})
    return list(rows)


def _note(tx: Transaction, kind: Literal["lost", "recovered"], counters: Mapping[str, int | None]) -> None:
    rows = [{"boot_id": boot, "kind": kind, "counter": counter} for boot, counter in sorted(counters.items())]
    tx.execute(QUERIES["note_heartbeats"], rows=json_rows(rows))


def _closed(tx: Transaction, rows: Sequence[Row], ended: Sequence[Row]) -> list[Row]:
    """The rows of the runs that ended; nobody needs to be told any more that they were lost."""
    run_ids = {row["run_id"] for row in ended}
    close_alerts(tx, "run_lost", sorted(run_ids))
    return [row for row in rows if row["run_id"] in run_ids]


def _claim(row: Row) -> EndedClaim:
    return EndedClaim(row["run_id"], row["claim_id"], row["boot_id"], row["boot_partition"])
