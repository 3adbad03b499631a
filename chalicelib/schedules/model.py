"""Frozen records of schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Self

from ..kernel.canonical import digest_of
from ..kernel.clock import instant_text, parse_instant

Dst = Literal["cron"]
OnResume = Literal["none", "run_latest"]


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """What decides when a schedule is due and from where: nothing else of a job does."""

    cron: str
    timezone: str
    dst: Dst = "cron"
    on_resume: OnResume = "none"

    @property
    def spec_hash(self) -> str:
        """Digest of exactly these four, as they are written."""
        return digest_of({"cron": self.cron, "timezone": self.timezone, "dst": self.dst, "on_resume": self.on_resume})


@dataclass(frozen=True, slots=True)
class Cursor:
    """Up to where a schedule has been dealt with: an instant, the wall time shown at it, and under which spec."""

    scheduled_for: datetime
    local_slot: str
    spec_hash: str

    def to_json(self) -> dict[str, str]:
        """The JSON object on the trigger's state row."""
        return {
            "scheduled_for": instant_text(self.scheduled_for),
            "local_slot": self.local_slot,
            "spec_hash": self.spec_hash,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Self:
        """Read what ``to_json`` wrote; a missing part raises ``KeyError``, another instant text ``ValueError``."""
        return cls(
            scheduled_for=parse_instant(str(document["scheduled_for"])),
            local_slot=str(document["local_slot"]),
            spec_hash=str(document["spec_hash"]),
        )


@dataclass(frozen=True, slots=True)
class Due:
    """A tick to write: the latest due occurrence, how many were passed over (at most 1,000), and how late it is."""

    scheduled_for: datetime
    local_slot: str
    skipped: int
    lateness_seconds: float

    def cursor(self, spec: ScheduleSpec) -> Cursor:
        """The cursor after this tick, also when the tick turns out to exist already."""
        return Cursor(self.scheduled_for, self.local_slot, spec.spec_hash)
