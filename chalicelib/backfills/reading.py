"""Backfills as lists and pages show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..database import Transaction, load_queries
from ..database.connection import Row
from ..kernel.clock import instant_text
from ..kernel.errors import NotFound
from ..kernel.limits import POOL_HOLDERS_NAMED
from ..kernel.paging import Page, cursor_instant, decode_cursor, encode_cursor
from ..runs.why import clears_when
from .model import BackfillView, BackfillWait, ItemView, Range
from .states import BackfillState

QUERIES = load_queries(__package__)


@dataclass(frozen=True, slots=True)
class BackfillFilter:
    """Which backfills a list shows; a missing part does not restrict."""

    location: str | None = None
    target: str | None = None
    job: str | None = None
    state: BackfillState | None = None


def one_backfill(tx: Transaction, backfill_id: str) -> BackfillView:
    """A backfill with its counts and what its next item waits for. Raises ``NotFound``."""
    row = tx.row(QUERIES["one_backfill"], backfill_id=backfill_id)
    if row is None:
        raise not_found(backfill_id)
    view = _views(tx, [row])[0]
    return view.model_copy(update={"waits_for": _waits(tx, row, view)})


def not_found(backfill_id: str) -> NotFound:
    """The error for a backfill that is not there."""
    return NotFound(f"there is no backfill {backfill_id!r}; `tidemill backfill list` shows those that are")


def list_backfills(tx: Transaction, filters: BackfillFilter, size: int, cursor: str | None) -> Page[BackfillView]:
    """Newest first. What they wait for is shown by the page of each."""
    bound = {"list": "backfills", **asdict(filters)}
    key = decode_cursor(bound, cursor, 2) if cursor else None
    rows = tx.rows(
        QUERIES["list_backfills"],
        **asdict(filters),
        key_at=cursor_instant(key[0]) if key else None,
        key_id=key[1] if key else None,
        limit=size + 1,
    )
    shown = _views(tx, rows[:size])
    more = len(rows) > size
    last = [instant_text(shown[-1].created_at), shown[-1].backfill_id] if more else []
    return Page(shown, encode_cursor(bound, last) if more else None)


def items(tx: Transaction, backfill_id: str, size: int, cursor: str | None) -> Page[ItemView]:
    """The items that began, in their order. Raises ``NotFound``."""
    bound = {"list": "backfill_items", "backfill_id": backfill_id}
    key = decode_cursor(bound, cursor, 1)[0] if cursor else None
    if tx.row(QUERIES["shard_of_backfill"], backfill_id=backfill_id) is None:
        raise not_found(backfill_id)
    rows = tx.rows(QUERIES["items_of_backfill"], backfill_id=backfill_id, key_item=key, limit=size + 1)
    shown = [ItemView(**row) for row in rows[:size]]
    return Page(shown, encode_cursor(bound, [shown[-1].item]) if len(rows) > size else None)


def _views(tx: Transaction, rows: Sequence[Row]) -> list[BackfillView]:
    ids = [row["backfill_id"] for row in rows]
    made = {row["backfill_id"]: row["made"] for row in tx.rows(QUERIES["items_made"], backfill_ids=ids)}
    counts: dict[str, dict[str, int]] = {}
    for row in tx.rows(QUERIES["counts_of_backfills"], backfill_ids=ids):
        counts.setdefault(row["backfill_id"], {})[row["status"]] = row["runs"]
    return [_view(row, made.get(row["backfill_id"], 0), counts.get(row["backfill_id"], {})) for row in rows]


def _view(row: Mapping[str, Any], made: int, counts: Mapping[str, int]) -> BackfillView:
    asked = Range.from_json(row["range_json"])
    plain = ("backfill_id", "location", "target", "job", "snapshot_id", "over", "max_parallel", "state", "requested_by")
    document = {name: row[name] for name in (*plain, "created_at", "finished_at")}
    shape = ("schedule", "step", "start_input", "end_input", "timezone", "items")
    return BackfillView.model_validate(
        {
            **document,
            **{name: getattr(asked, name) for name in shape},
            "from": asked.first,
            "to": asked.until,
            "inputs": row["inputs_json"],
            "waiting": asked.items - made,
            "counts": dict(counts),
            "waits_for": [],
        }
    )


def _waits(tx: Transaction, row: Mapping[str, Any], view: BackfillView) -> list[BackfillWait]:
    """Only an active one with items left waits: for room of its own or of its job, or for what its last attempt lacked."""
    if view.state != "active" or view.waiting <= 0:
        return []
    now = tx.row(QUERIES["waits_of_job"], backfill_id=view.backfill_id, named=POOL_HOLDERS_NAMED)
    derived = _derived(view, now) if now else None
    if derived is not None:
        return [derived]
    return [BackfillWait(**wait, clears_when=clears_when(wait["code"], wait["detail"])) for wait in row["waits_json"]]


def _derived(view: BackfillView, now: Mapping[str, Any]) -> BackfillWait | None:
    """What holds right now, whatever the last attempt found."""
    unfinished, active, queued = now["unfinished"], now["active"], now["queued"]
    if len(unfinished) >= view.max_parallel:
        detail = {"limit": view.max_parallel, "unfinished": unfinished}
        clears = f"one of its {len(unfinished)} unfinished runs ends (at most {view.max_parallel} at once)"
        return BackfillWait(
            code="max_parallel", subject=view.backfill_id, detail=detail, since=None, clears_when=clears
        )
    if queued:
        clears = f"run {queued[0]} of the same job has begun; a waiting run goes first"
        return BackfillWait(
            code="waiting_run", subject=view.job, detail={"run": queued[0]}, since=None, clears_when=clears
        )
    if len(active) >= now["concurrency"]:
        detail = {"limit": now["concurrency"], "active": active, "ahead": 0}
        clears = clears_when("job_concurrency", detail)
        return BackfillWait(code="job_concurrency", subject=view.job, detail=detail, since=None, clears_when=clears)
    return None
