"""The base of records that cross a boundary, and how an instant is written in them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from .clock import in_utc, instant_text, parse_instant
from .ids import CLIENT_ID_PATTERN


def _from_text(value: object) -> object:
    """Read a text here: the library would take ``0.5`` for seconds since 1970."""
    if isinstance(value, int | float):
        raise ValueError("write an instant such as 2026-01-31T06:15:00Z")  # noqa: TRY004 - pydantic wants ValueError
    return parse_instant(value) if isinstance(value, str) else value


Instant = Annotated[
    AwareDatetime,
    BeforeValidator(_from_text),
    AfterValidator(in_utc),
    PlainSerializer(instant_text, return_type=str, when_used="json"),
]
"""An aware datetime, kept in UTC and written with six digits (scheduler.md 1.4)."""

KEY_PATTERN = r"^[a-z0-9_-]{1,100}$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"

__all__ = ["CLIENT_ID_PATTERN", "KEY_PATTERN", "SHA256_PATTERN", "Instant", "Record"]


class Record(BaseModel):
    """Frozen, and refuses a field that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")
