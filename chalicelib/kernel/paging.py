"""Keyset cursors: opaque to the client, bound to the filter that they were made for."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from .canonical import digest_of
from .clock import parse_instant
from .errors import InvalidRequest
from .limits import PAGE_DEFAULT, PAGE_MAX

Item = TypeVar("Item")

_FILTER_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Up to ``limit`` items, and the cursor of the next page or ``None`` at the end."""

    items: Sequence[Item]
    next_cursor: str | None


def check_limit(limit: int | None) -> int:
    """The page size asked for, 50 by default, refused outside 1 to 200."""
    if limit is None:
        return PAGE_DEFAULT
    if not 1 <= limit <= PAGE_MAX:
        raise InvalidRequest.of_field("limit", f"use 1 to {PAGE_MAX}")
    return limit


def encode_cursor(filters: Mapping[str, object], key: Sequence[str]) -> str:
    """The cursor behind the row with that sort key, under those filters."""
    text = json.dumps([digest_of(dict(filters))[:_FILTER_DIGITS], *key])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def cursor_instant(part: str) -> datetime:
    """An instant in a decoded cursor, which anybody may have written."""
    try:
        return parse_instant(part)
    except ValueError:
        raise _refused() from None


def cursor_number(part: str) -> int:
    """A whole number of up to 18 digits in a decoded cursor, which anybody may have written."""
    if not re.fullmatch(r"[0-9]{1,18}", part):
        raise _refused()
    return int(part)


def _refused() -> InvalidRequest:
    return InvalidRequest.of_field("cursor", "start again without a cursor; this one belongs to another list")


def decode_cursor(filters: Mapping[str, object], cursor: str, parts: int) -> list[str]:
    """The sort key in ``cursor``; refused when it is not ours or was made under other filters."""
    refused = _refused()
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        decoded = json.loads(base64.urlsafe_b64decode(padded.encode()))
    except (ValueError, binascii.Error):
        raise refused from None
    if not isinstance(decoded, list) or not all(isinstance(part, str) for part in decoded):
        raise refused
    if len(decoded) != parts + 1 or decoded[0] != digest_of(dict(filters))[:_FILTER_DIGITS]:
        raise refused
    return decoded[1:]
