"""Instants on the command line."""

from __future__ import annotations

from datetime import datetime

from ..kernel.clock import parse_instant
from ..kernel.errors import UsageError


def instant_option(option: str, text: str | None) -> datetime | None:
    """The instant that an option names. Raises ``UsageError`` for one without a zone."""
    try:
        return None if text is None else parse_instant(text)
    except ValueError:
        raise UsageError.of_field(
            option, f"{text!r} is no instant with a zone; write it as 2026-01-31T06:15:00Z"
        ) from None
