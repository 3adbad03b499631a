"""Use cases of schedules: publication merges triggers, passes evaluate them, people look and switch them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from ..catalog.ports import DeclaredTrigger, MergedTriggers
from ..cron import preview, tzdata_version
from ..database import Database, Transaction, Write, load_queries
from ..database.connection import json_rows
from ..kernel.canonical import canonical_json, digest_of
from ..kernel.clock import instant_text, parse_instant
from ..kernel.errors import IdReused, NotFound
from ..kernel.ids import IdSource, check_client_id
from ..kernel.paging import Page, check_limit, cursor_instant, decode_cursor, encode_cursor
from ..leases.lowering import HintLowering
from .evaluation import Evaluated, Keyset, evaluate_batch, recompute_page
from .model import Cursor, ScheduleSpec
from .plan import edited_cursor, first_cursor, next_due_at, resumed_cursor
from .views import OccurrenceView, PreviewView, TickView, TriggerView

QUERIES = load_queries(__package__)


class ScheduleService:
    """Triggers of one installation."""

    def __init__(self, database: Database, ids: IdSource, lowering: HintLowering) -> None:
        self._database = database
        self._ids = ids
        self._lowering = lowering

    # --- publication

    def merge(self, tx: Transaction, location: str, target: str, declared: Sequence[DeclaredTrigger]) -> MergedTriggers:
        """Bring a target's triggers to what is declared; an unchanged spec keeps its cursor (S18)."""
        stored = {
            row["trigger_id"]: row for row in tx.rows(QUERIES["triggers_of_target"], location=location, target=target)
        }
        wanted = {trigger.trigger_id for trigger in declared}
        gone = sorted(stored.keys() - wanted)
        if gone:
            tx.execute(QUERIES["remove_triggers"], trigger_ids=gone)
        if declared:
            tx.execute(QUERIES["keep_triggers"], rows=json_rows([_trigger_row(trigger) for trigger in declared]))
            states = [_state_row(trigger, stored.get(trigger.trigger_id), tx.now) for trigger in declared]
            tx.execute(QUERIES["keep_states"], rows=json_rows(states))
        kept = sum(_spec_hash(t) == stored[t.trigger_id]["spec_hash"] for t in declared if t.trigger_id in stored)
        return MergedTriggers(
            added=len(wanted - stored.keys()),
            changed=len(wanted & stored.keys()) - kept,
            kept=kept,
            removed=len(gone),
        )

    # --- the pass

    def evaluate_batch(self, write: Write, shard: int, pass_now: datetime, after: Keyset) -> Evaluated:
        """Tick one batch of due schedules."""
        return write(lambda tx: evaluate_batch(tx, self._ids, shard, pass_now, after))

    def keep_zone_data(self, write: Write, shard: int) -> bool:
        """Recompute when every schedule is due if the zone data is another than before; whether it was.

        Page by page, each in a transaction of its own; after a crash in between it begins again.
        """
        version = tzdata_version()
        stored = write(lambda tx: tx.row(QUERIES["zone_data"], shard=shard))
        if stored is None or stored["tzdata_version"] == version:
            return False
        last: str | None = ""
        while last is not None:
            last = write(partial(recompute_page, shard=shard, after=last))
        write(lambda tx: tx.execute(QUERIES["keep_zone_data"], shard=shard, version=version))
        return True

    # --- people

    def triggers(self, location: str, target: str) -> list[TriggerView]:
        """All triggers of a target by name."""
        with self._database.transaction() as tx:
            return [_view(row) for row in tx.rows(QUERIES["list_triggers"], location=location, target=target)]

    def trigger(self, location: str, target: str, name: str) -> TriggerView:
        """One trigger."""
        with self._database.transaction() as tx:
            return _view(_locked(tx, location, target, name))

    def set_enabled(self, location: str, target: str, name: str, *, enabled: bool, request_id: str) -> TriggerView:
        """Switch a trigger; enabling starts at this moment, or where it stopped with ``on_resume="run_latest"``."""
        check_client_id("request_id", request_id)
        trigger_id = f"{location}/{target}/{name}"
        return self._lowering.lowered(
            lambda tx: [row["shard"] for row in tx.rows(QUERIES["shard_of_trigger"], trigger_id=trigger_id)],
            lambda tx: _switch(tx, (location, target, name), enabled, request_id),
            wakes=lambda view: view.enabled,
        )

    def ticks(self, location: str, target: str, name: str, limit: int | None, cursor: str | None) -> Page[TickView]:
        """A trigger's ticks, newest first."""
        size = check_limit(limit)
        trigger_id = f"{location}/{target}/{name}"
        bound = {"ticks": trigger_id}
        key = decode_cursor(bound, cursor, 1)[0] if cursor else None
        with self._database.transaction() as tx:
            _locked(tx, location, target, name)
            key_at = cursor_instant(key) if key else None
            rows = tx.rows(QUERIES["list_ticks"], trigger_id=trigger_id, key_at=key_at, limit=size + 1)
        shown = [TickView(**row) for row in rows[:size]]
        more = encode_cursor(bound, [instant_text(shown[-1].scheduled_for)]) if len(rows) > size else None
        return Page(shown, more)

    def preview(self, cron: str, timezone: str, after: datetime | None, count: int) -> PreviewView:
        """The next occurrences of any expression; ``after`` is now when it is not given."""
        if after is None:
            with self._database.transaction() as tx:
                after = tx.now
        shown = preview(cron, timezone, after, count)
        return PreviewView(
            cron=shown.cron,
            timezone=shown.timezone,
            occurrences=[
                OccurrenceView(
                    scheduled_for=o.scheduled_for,
                    local_time=o.local_time,
                    abbreviation=o.abbreviation,
                    zone_change=o.zone_change,
                    region_time=o.region_time,
                )
                for o in shown.occurrences
            ],
            warnings=list(shown.warnings),
            day_rule=shown.day_rule,
        )

    def preview_of(self, location: str, target: str, name: str, after: datetime | None, count: int) -> PreviewView:
        """The next occurrences of a published schedule."""
        trigger = self.trigger(location, target, name)
        if trigger.kind != "schedule":
            raise NotFound(f"{name} is a {trigger.kind} sensor; only a schedule has occurrences")
        return self.preview(trigger.spec["cron"], trigger.spec["timezone"], after, count)


def _spec_hash(trigger: DeclaredTrigger) -> str:
    return ScheduleSpec(**trigger.spec).spec_hash if trigger.kind == "schedule" else digest_of(trigger.spec)


def _trigger_row(trigger: DeclaredTrigger) -> dict[str, Any]:
    return {
        "trigger_id": trigger.trigger_id,
        "location": trigger.location,
        "target": trigger.target,
        "name": trigger.name,
        "job": trigger.job,
        "kind": trigger.kind,
        "spec": trigger.spec,
        "spec_hash": _spec_hash(trigger),
    }


def _state_row(trigger: DeclaredTrigger, stored: Mapping[str, Any] | None, now: datetime) -> dict[str, Any]:
    row: dict[str, Any] = {"trigger_id": trigger.trigger_id, "shard": trigger.shard, "enabled": trigger.enabled}
    if trigger.kind != "schedule":
        # Evaluating sensors is not part of this release: their cursor is the time of creation, and nothing is due.
        cursor = stored["cursor_json"] if stored else {"created_at": instant_text(now)}
        return row | {"cursor": cursor, "next_at": None}
    spec = ScheduleSpec(**trigger.spec)
    if stored is None or stored["kind"] != "schedule":
        position = first_cursor(spec, now)
    else:
        position = edited_cursor(spec, Cursor.from_json(stored["cursor_json"]), now)
    return row | _position(spec, position)


def _position(spec: ScheduleSpec, cursor: Cursor) -> dict[str, Any]:
    next_at = next_due_at(spec, cursor)
    return {"cursor": cursor.to_json(), "next_at": instant_text(next_at) if next_at else None}


def _locked(tx: Transaction, location: str, target: str, name: str) -> dict[str, Any]:
    row = tx.row(QUERIES["lock_trigger"], location=location, target=target, name=name)
    if row is None:
        raise NotFound(f"no trigger {name!r} of {location}/{target}; `tidemill triggers list` shows those that are")
    return row


def _switch(tx: Transaction, key: tuple[str, str, str], enabled: bool, request_id: str) -> TriggerView:
    row = _locked(tx, *key)
    digest = digest_of({"enabled": enabled})
    earlier = tx.row(QUERIES["stored_request"], trigger_id=row["trigger_id"], request_id=request_id)
    if earlier is not None:
        if earlier["digest"] != digest:
            raise IdReused.of_field("request_id", "this request id asked for something else; make a new id")
        return TriggerView.model_validate(earlier["response"])
    position = {"cursor": row["cursor_json"], "next_at": instant_text(row["next_at"]) if row["next_at"] else None}
    if enabled and not row["enabled"] and row["kind"] == "schedule":
        spec = ScheduleSpec(**row["spec"])
        position = _position(spec, resumed_cursor(spec, Cursor.from_json(row["cursor_json"]), tx.now))
    next_at = parse_instant(position["next_at"]) if position["next_at"] else None
    tx.execute(
        QUERIES["set_enabled"],
        trigger_id=row["trigger_id"],
        enabled=enabled,
        cursor=canonical_json(position["cursor"]),
        next_at=next_at,
    )
    view = _view(row | {"enabled": enabled, "next_at": next_at})
    response = canonical_json(view.model_dump(mode="json"))
    tx.execute(
        QUERIES["store_request"], trigger_id=row["trigger_id"], request_id=request_id, digest=digest, response=response
    )
    return view


def _view(row: Mapping[str, Any]) -> TriggerView:
    return TriggerView(
        name=row["name"],
        job=row["job"],
        kind=row["kind"],
        spec=row["spec"],
        enabled=row["enabled"],
        next_at=row["next_at"] if row["enabled"] else None,
        evaluated=row["kind"] == "schedule",
    )
