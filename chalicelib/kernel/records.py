"""The base of records that cross a boundary, and how an instant is written in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, PlainSerializer

from .clock import instant_text
from .ids import CLIENT_ID_PATTERN


def _to_utc(instant: datetime) -> datetime:
    return instant.astimezone(UTC)


Instant = Annotated[
    AwareDatetime, AfterValidator(_to_utc), PlainSerializer(instant_text, return_type=str, when_used="json")
]
"""An aware datetime, kept in UTC and written with six digits (scheduler.md 1.4)."""

KEY_PATTERN = r"^[a-z0-9_-]{1,100}$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"

__all__ = ["CLIENT_ID_PATTERN", "KEY_PATTERN", "SHA256_PATTERN", "Instant", "Record"]


class Record(BaseModel):
    """Frozen, and refuses a field that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")
