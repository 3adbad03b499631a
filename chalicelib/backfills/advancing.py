"""The step of the pass (scheduler.md 5.6 f): begin items as far as they can be claimed, in one transaction.

The runs are queued, decided as any others, and those that were not claimed are deleted again before the commit; so
nobody ever sees a waiting run of a backfill that could cover a tick or be left behind by a cancel.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..database import Transaction, load_queries
from ..database.connection import Row, json_rows
from ..kernel.clock import instant_text
from ..kernel.errors import TidemillError
from ..kernel.ids import IdSource
from ..kernel.limits import BACKFILLS_PER_BATCH, CLAIMS_PER_BATCH
from ..projects.bundle import JobDefinition
from ..runs.claiming import admit, candidates_of_runs
from ..runs.queueing import NewRun, queue_runs
from ..runs.selecting import narrowed
from .model import Item, Range
from .plan import NextStep, Standing, cursor_after, inputs_of, next_step

QUERIES = load_queries(__package__)
LOG = logging.getLogger("tidemill.backfills")

Keyset = tuple[datetime, str]


@dataclass(frozen=True, slots=True)
class Advanced:
    """What one batch did: ``claimed`` maps run to claim; ``cancelling`` names backfills whose runs are to be cancelled.

    ``last`` is where the next batch goes on, ``None`` when there was no more.
    """

    claimed: Mapping[str, str]
    cancelling: Sequence[str] = ()
    last: Keyset | None = None


@dataclass(frozen=True, slots=True)
class _Begun:
    """An item of a backfill and the run that it would have."""

    item: Item
    run: NewRun


@dataclass(frozen=True, slots=True)
class _Decided:
    """A backfill of the batch with what is to be done for it."""

    row: Row
    asked: Range
    step: NextStep
    begun: Sequence[_Begun]

    @property
    def backfill_id(self) -> str:
        """Its id."""
        return str(self.row["backfill_id"])


def advance_batch(tx: Transaction, ids: IdSource, shard: int, after: Keyset) -> Advanced:
    """Take the next step of up to 20 unfinished backfills of a shard behind ``after``, with up to 50 new runs.

    Only the shard's leader calls this, as with ``claim_batch``.
    """
    rows = tx.rows(
        QUERIES["open_backfills"], shard=shard, after_at=after[0], after_id=after[1], batch=BACKFILLS_PER_BATCH
    )
    if not rows:
        return Advanced({})
    decided = _decide(tx, ids, rows)
    claimed, found = _claim(tx, ids, [begun for one in decided for begun in one.begun])
    _record(tx, decided, claimed, found)
    full = len(rows) == BACKFILLS_PER_BATCH or len(decided) < len(rows)
    last = decided[-1].row
    return Advanced(
        claimed,
        [one.backfill_id for one in decided if one.step.cancel_runs],
        (last["created_at"], last["backfill_id"]) if full else None,
    )


def _decide(tx: Transaction, ids: IdSource, rows: Sequence[Row]) -> list[_Decided]:
    """Until a backfill may want more runs than fit into the batch: the next one begins with it."""
    decided: list[_Decided] = []
    budget = CLAIMS_PER_BATCH
    for row in rows:
        if row["max_parallel"] > budget:
            break
        one = _decide_one(tx, ids, row, budget)
        decided.append(one)
        budget -= len(one.begun)
    return decided


def _decide_one(tx: Transaction, ids: IdSource, row: Row, budget: int) -> _Decided:
    asked = Range.from_json(row["range_json"])
    try:
        step = next_step(asked, _standing(row), budget)
        begun = _begin(tx, ids, row, asked, step.items)
    except (TidemillError, ValueError, ArithmeticError):  # what was checked at the start no longer holds: others go on
        LOG.exception("backfill %s cannot be computed", row["backfill_id"])
        return _Decided(row, asked, NextStep(), ())
    return _Decided(row, asked, step, begun)


def _standing(row: Row) -> Standing:
    return Standing(
        state=row["state"],
        max_parallel=row["max_parallel"],
        unfinished=row["unfinished"],
        job_room=row["job_room"],
        job_waits=row["job_waits"],
        cursor=row["cursor"],
        made_ahead=frozenset(row["made_ahead"]),
    )


def _begin(tx: Transaction, ids: IdSource, row: Row, asked: Range, items: Sequence[Item]) -> list[_Begun]:
    if not items:
        return []
    definition = JobDefinition.model_validate(row["definition"])
    values = [inputs_of(asked, definition, row["inputs_json"], item) for item in items]
    selection = narrowed(tx, row["snapshot_id"], definition, values[0])
    return [
        _Begun(
            item,
            NewRun(
                ids.mint("run"), row["location"], row["target"], row["job"], row["shard"], row["snapshot_id"], inputs,
                "backfill", scheduled_for=item.at if asked.over == "occurrences" else None,
                requested_by=row["requested_by"], selection=selection, backfill_id=row["backfill_id"],
            ),
        )
        for item, inputs in zip(items, values, strict=True)
    ]  # fmt: skip


def _claim(tx: Transaction, ids: IdSource, begun: Sequence[_Begun]) -> tuple[dict[str, str], dict[str, list[Row]]]:
    """Run by claim of those that were claimed, and the blockers of the others, which are gone again."""
    if not begun:
        return {}, {}
    queue_runs(tx, ids, [one.run for one in begun])
    place = {one.run.run_id: at for at, one in enumerate(begun)}
    # Ids made in one millisecond have no order; the items have.
    rows = sorted(candidates_of_runs(tx, list(place)), key=lambda row: place[row["run_id"]])
    claimed = dict(admit(tx, ids, rows).claimed)
    others = [run_id for run_id in place if run_id not in claimed]
    found: dict[str, list[Row]] = {}
    if others:
        for row in tx.rows(QUERIES["blockers_of_runs"], run_ids=others):
            found.setdefault(row["run_id"], []).append(row)
        tx.execute(QUERIES["drop_unclaimed"], run_ids=others)
    return claimed, found


def _record(
    tx: Transaction, decided: Iterable[_Decided], claimed: Mapping[str, str], found: Mapping[str, list[Row]]
) -> None:
    items: list[dict[str, Any]] = []
    moves: list[dict[str, Any]] = []
    for one in decided:
        made = [begun for begun in one.begun if begun.run.run_id in claimed]
        items += [{"backfill_id": one.backfill_id, "item": b.item.name, "run_id": b.run.run_id} for b in made]
        move = _moved(one, {begun.item.name for begun in made}, found, tx.now)
        if move != {name: one.row[name] for name in ("cursor", "state")} | {"waits": one.row["waits_json"]}:
            moves.append(move | {"backfill_id": one.backfill_id})
    if items:
        tx.execute(QUERIES["insert_items"], rows=json_rows(items))
    if moves:
        tx.execute(QUERIES["move_backfills"], rows=json_rows(moves))


def _moved(one: _Decided, made: set[str], found: Mapping[str, list[Row]], now: datetime) -> dict[str, Any]:
    """What stands on the row from now on. What still blocks keeps its start."""
    made |= set(one.row["made_ahead"])
    cursor = cursor_after(one.asked, one.row["cursor"], made) if one.begun else one.row["cursor"]
    blocked = next((found.get(begun.run.run_id, []) for begun in one.begun if begun.item.name not in made), [])
    since = {(wait["code"], wait["subject"]): wait["since"] for wait in one.row["waits_json"]}
    waits = [
        {
            "code": row["code"],
            "subject": row["subject"],
            "detail": row["detail"],
            "since": since.get((row["code"], row["subject"]), instant_text(now)),
        }
        for row in blocked
    ]
    return {"cursor": cursor, "state": one.step.ended or one.row["state"], "waits": waits}
