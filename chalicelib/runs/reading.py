"""Reading runs: lists, one run, its nodes, events and blockers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..database import Transaction, load_queries
from ..kernel.clock import instant_text
from ..kernel.errors import NotFound
from ..kernel.limits import HEARTBEATS_SHOWN
from ..kernel.paging import Page, cursor_instant, cursor_number, decode_cursor, encode_cursor
from ..kernel.records import Instant, Record
from .model import EventView, HeartbeatView, NodeView, RunDetail, RunView
from .states import RunState

QUERIES = load_queries(__package__)
LOSING = load_queries(__package__, "losing.sql")


class RunFilter(Record):
    """Which runs a list shows; an absent field does not restrict."""

    location: str | None = None
    target: str | None = None
    job: str | None = None
    state: RunState | None = None
    origin: str | None = None
    after: Instant | None = None
    before: Instant | None = None


def run_view(row: Mapping[str, Any]) -> RunView:
    """A row of ``list_runs`` or ``one_run`` as a record."""
    shown = {name: row[name] for name in RunView.model_fields if name in row}
    trigger = row["trigger_id"]
    return RunView(
        **shown,
        state=row["status"],
        inputs=row["inputs_json"],
        trigger=trigger.split("/", 2)[2] if trigger else None,
    )


def list_runs(tx: Transaction, filters: RunFilter, limit: int, cursor: str | None) -> Page[RunView]:
    """Newest first; one row more than shown tells whether a next page exists."""
    bound = filters.model_dump(mode="json")
    key_at, key_run = decode_cursor(bound, cursor, 2) if cursor else (None, None)
    rows = tx.rows(
        QUERIES["list_runs"],
        **filters.model_dump(),
        key_at=cursor_instant(key_at) if key_at else None,
        key_run=key_run,
        limit=limit + 1,
    )
    shown = [run_view(row) for row in rows[:limit]]
    more = encode_cursor(bound, [instant_text(shown[-1].created_at), shown[-1].run_id]) if len(rows) > limit else None
    return Page(shown, more)


def one_run(tx: Transaction, run_id: str) -> RunView:
    """One run, or ``NotFound``."""
    row = tx.row(QUERIES["one_run"], run_id=run_id)
    if row is None:
        raise NotFound(f"no run {run_id}; `tidemill runs list` shows the newest")
    return run_view(row)


def run_detail(tx: Transaction, run_id: str) -> RunDetail:
    """One run with what recovery saw of its boots, or ``NotFound``."""
    run = one_run(tx, run_id)
    seen = tx.rows(LOSING["heartbeats_of_run"], run_id=run_id, most=HEARTBEATS_SHOWN)
    return RunDetail(**dict(run), heartbeats=[HeartbeatView(**row) for row in seen])


def nodes(tx: Transaction, run_id: str, limit: int, cursor: str | None) -> Page[NodeView]:
    """The nodes of a run by id."""
    one_run(tx, run_id)
    (key,) = decode_cursor({"nodes": run_id}, cursor, 1) if cursor else ("",)
    rows = tx.rows(QUERIES["nodes_of_run"], run_id=run_id, key_node=key, limit=limit + 1)
    shown = [NodeView(**row) for row in rows[:limit]]
    return Page(shown, encode_cursor({"nodes": run_id}, [shown[-1].node]) if len(rows) > limit else None)


def events(tx: Transaction, run_id: str, limit: int, cursor: str | None) -> Page[EventView]:
    """The events of a run in their order."""
    one_run(tx, run_id)
    (key,) = decode_cursor({"events": run_id}, cursor, 1) if cursor else ("0",)
    rows = tx.rows(QUERIES["events_of_run"], run_id=run_id, key_seq=cursor_number(key), limit=limit + 1)
    shown = [EventView(**row) for row in rows[:limit]]
    return Page(shown, encode_cursor({"events": run_id}, [str(shown[-1].seq)]) if len(rows) > limit else None)
