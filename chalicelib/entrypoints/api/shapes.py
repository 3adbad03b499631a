"""Parameters that several resources share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ...kernel.limits import PAGE_DEFAULT, PAGE_MAX
from ...kernel.records import CLIENT_ID_PATTERN, KEY_PATTERN, SHA256_PATTERN, Record

Key = Annotated[str, Field(pattern=KEY_PATTERN)]
ClientId = Annotated[str, Field(pattern=CLIENT_ID_PATTERN)]
Sha256 = Annotated[str, Field(pattern=SHA256_PATTERN)]
CURSOR_CHARACTERS = 2_000


class LocationPath(Record):
    """A location."""

    location: Key


class TargetPath(LocationPath):
    """A target of a location."""

    target: Key


class RunPath(Record):
    """A run."""

    run_id: ClientId


class Paging(Record):
    """The page of a list. ``cursor`` is the ``next_cursor`` of the page before, made under the same filters."""

    limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT
    cursor: Annotated[str, Field(max_length=CURSOR_CHARACTERS)] | None = None
