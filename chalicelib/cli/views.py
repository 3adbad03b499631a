"""Answers of the server as tables and facts. Pure; reads only keys that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .output import Block, Facts, Table, cell

Row = Mapping[str, Any]
Columns = tuple[tuple[str, ...], list[tuple[str, ...]]]


def chosen(columns: Sequence[str], items: Sequence[Row]) -> Columns:
    """The named keys of each item as cells."""
    return tuple(columns), [tuple(cell(item.get(name)) for name in columns) for item in items]


def facts(item: Row, *, without: Sequence[str] = ()) -> Facts:
    """Every key of an item with its value."""
    return Facts([(name, cell(value)) for name, value in item.items() if name not in without])


def job_rows(items: Sequence[Row]) -> Columns:
    """Jobs: key, size, limits, description."""
    columns = ("job", "worker", "timeout_seconds", "concurrency", "nodes", "triggers", "description")
    rows = [{**item, **(item.get("definition") or {})} for item in items]
    return columns, [tuple(cell(_counted(row.get(name))) for name in columns) for row in rows]


def run_rows(items: Sequence[Row]) -> Columns:
    """Runs of a list, newest first as the server gives them."""
    columns = ("run_id", "job", "location", "target", "origin", "state", "end_reason", "created_at", "finished_at")
    return chosen(columns, items)


def run_blocks(run: Row) -> list[Block]:
    """One run, and what recovery saw of its workers."""
    blocks: list[Block] = [run_facts(run)]
    if heartbeats := run.get("heartbeats"):
        columns, rows = chosen(("observed_at", "boot_id", "kind", "counter"), heartbeats)
        blocks.append(Table(("seen at", "worker", "heartbeat", *columns[3:]), rows))
    return blocks


def run_facts(run: Row) -> Facts:
    """One run: what, why, and how it stands."""
    apart = {"summary", "claim", "heartbeats"}
    pairs = [(name, cell(value)) for name, value in run.items() if name not in apart and value is not None]
    for outer in ("claim", "summary"):
        inner = run.get(outer) or {}
        pairs += [(f"{outer} {name}", cell(value)) for name, value in inner.items() if value is not None]
    return Facts(pairs)


def chain_rows(items: Sequence[Row]) -> Columns:
    """A run and its retries, oldest first."""
    return chosen(("retry_number", "run_id", "state", "end_reason", "not_before", "started_at", "finished_at"), items)


def why_blocks(why: Row) -> list[Block]:
    """The explanation, then each blocker: since when, and what would clear it."""
    blocks: list[Block] = [f"{cell(why.get('run_id'))} is {cell(why.get('state'))}: {cell(why.get('explanation'))}"]
    blockers = why.get("blockers") or []
    if blockers:
        rows = [
            (
                cell(one.get("code")),
                cell(one.get("subject")),
                cell(one.get("since")),
                cell(one.get("clears_when")),
                cell(_detail(one)),
            )
            for one in blockers
        ]
        blocks.append(Table(("blocker", "on", "since", "clears when", "detail"), rows))
    if progress := why.get("progress"):
        blocks.append(facts(progress))
    if claim := why.get("claim"):
        blocks.append(facts(claim))
    return blocks


def trigger_rows(items: Sequence[Row]) -> Columns:
    """Triggers with their next occurrence."""
    columns = ("name", "job", "kind", "enabled", "next_at", "cron", "timezone")
    rows = [
        {**item, **(item.get("spec") or {}), "next_at": item.get("next_at") or item.get("next_occurrence")}
        for item in items
    ]
    return chosen(columns, rows)


def occurrence_blocks(preview: Row) -> list[Block]:
    """The occurrences of a schedule: local time, zone, UTC, and a mark where clocks change that day."""
    rows = [
        (
            cell(one.get("local_time")),
            cell(one.get("abbreviation")),
            cell(one.get("scheduled_for")),
            "clocks change" if one.get("zone_change") else "",
        )
        for one in preview.get("occurrences") or []
    ]
    blocks: list[Block] = [Table(("local time", "zone", "UTC", "note"), rows, empty="no occurrence within 50 years")]
    if rule := preview.get("day_rule"):
        blocks.append(str(rule))
    return blocks


def _counted(value: Any) -> Any:
    return len(value) if isinstance(value, list | dict) else value


def _detail(blocker: Row) -> str:
    return ", ".join(f"{name} {cell(value)}" for name, value in (blocker.get("detail") or {}).items())
