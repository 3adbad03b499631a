"""Records of alerts: what a scan found, and what people read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..kernel.records import Instant, Record

Condition = Literal[
    "launch_failed", "run_waiting", "run_lost", "run_overdue",
    "schedule_uncomputable", "scheduler_late", "clock_skew", "queue_dead_letter",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class AlertFact:
    """A condition that holds now. ``episode`` is its own id (a run, a claim), or ``None`` for the next number."""

    condition: Condition
    subject: str
    detail: Mapping[str, Any] = field(default_factory=dict)
    episode: str | None = None


class AlertView(Record):
    """An alert as people read it; open while ``closed_at`` is missing."""

    condition: Condition
    subject: str
    episode: str
    detail: dict[str, Any]
    first_seen_at: Instant
    closed_at: Instant | None
