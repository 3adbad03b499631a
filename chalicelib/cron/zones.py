"""Time zones from the pinned ``tzdata`` package, and what a zone's clocks show.

Zones are read from the package itself, not through ``zoneinfo``'s search path, which asks the
machine's own files first: two machines, or a machine and Lambda, would then place one schedule
differently. ``zoneinfo.reset_tzpath`` would do too, but it changes the whole process, which in a
project's interpreter is not ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]  # ships no types

from ..kernel.errors import FieldError, InvalidSchedule

# What people mean who name a fixed offset by its winter abbreviation.
REGION_OF_ABBREVIATION: Mapping[str, str] = {
    "EST": "America/New_York",
    "MST": "America/Denver",
    "HST": "Pacific/Honolulu",
    "GMT": "Europe/London",
    "GMT0": "Europe/London",
    "GMT+0": "Europe/London",
    "GMT-0": "Europe/London",
}
# Abbreviations that are no zone names, and where people who write them mostly are.
_REGION_OF_UNKNOWN: Mapping[str, str] = {
    "PST": "America/Los_Angeles",
    "PDT": "America/Los_Angeles",
    "MDT": "America/Denver",
    "CST": "America/Chicago",
    "CDT": "America/Chicago",
    "EDT": "America/New_York",
    "BST": "Europe/London",
    "CEST": "Europe/Berlin",
    "EEST": "Europe/Athens",
}
# A placeholder of the database for "not configured", not a place.
_NOT_ZONES = frozenset({"Factory"})
_SECOND = timedelta(seconds=1)
_ZONES_CACHED = 1_024  # more than there are names


def tzdata_version() -> str:
    """The release of the zone database in use, such as ``2026a``."""
    version: str = tzdata.IANA_VERSION
    return version


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Every name that ``zone`` accepts."""
    listed = resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8")
    return frozenset(listed.split()) - _NOT_ZONES


@lru_cache(maxsize=_ZONES_CACHED)
def zone(name: str) -> ZoneInfo:
    """The zone called ``name``; ``InvalidSchedule`` naming ``timezone`` and near names when there is none."""
    if name not in zone_names():
        message = unknown_zone(name)
        raise InvalidSchedule(f"timezone: {message}", fields=[FieldError("timezone", "unknown_timezone", message)])
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as stream:
        return ZoneInfo.from_file(stream, key=name)


def unknown_zone(name: str) -> str:
    """What is wrong with a zone name that does not exist, and what to write."""
    if not name.strip():
        return "is empty; name a zone, such as Europe/Berlin or UTC"
    if region := _REGION_OF_UNKNOWN.get(name.strip().upper()):
        return f"{name!r} is an abbreviation and not a time zone; name a region, such as {region}"
    by_folded = {known.lower(): known for known in sorted(zone_names())}
    near = difflib.get_close_matches(name.strip().lower(), by_folded, n=3, cutoff=0.75)
    if near:
        return f"{name!r} is not a time zone; did you mean {' or '.join(by_folded[one] for one in near)}?"
    return f"{name!r} is not a time zone; use a name of the IANA database, such as Europe/Berlin or UTC"


def shown(instant: datetime, timezone: ZoneInfo) -> datetime:
    """The wall time at ``instant``, without its zone; ``fold`` is 1 in the second pass of a repeated time."""
    return instant.astimezone(timezone).replace(tzinfo=None)


def local_slot(timezone: str, instant: datetime) -> str:
    """The wall time that clocks of ``timezone`` show at ``instant``, such as ``2026-11-01T01:30``.

    Both passes of a repeated hour show the same one; such slots are told apart by their instants.
    """
    return shown(instant, zone(timezone)).isoformat(timespec="minutes")


def offsets(wall: datetime, timezone: ZoneInfo) -> tuple[timedelta, timedelta]:
    """The two readings of a wall time's offset: the first is larger when it is repeated, smaller in a gap."""
    first = wall.replace(tzinfo=timezone, fold=0)
    return _offset(first), _offset(first.replace(fold=1))


def instant_of(wall: datetime, offset: timedelta) -> datetime:
    """The instant of a wall time under that offset, in UTC."""
    return (wall - offset).replace(tzinfo=UTC, fold=0)


def change_near(wall: datetime, timezone: ZoneInfo) -> datetime:
    """The first instant of the new offset, for a wall time that the change repeats or leaves out."""
    whole = wall.replace(microsecond=0)  # offsets change on whole seconds; so must the search below
    first, second = (instant_of(whole, offset) for offset in offsets(wall, timezone))
    low, high = min(first, second), max(first, second)
    after = high.astimezone(timezone).utcoffset()
    while high - low > _SECOND:
        middle = low + (high - low) // _SECOND // 2 * _SECOND
        if middle.astimezone(timezone).utcoffset() == after:
            high = middle
        else:
            low = middle
    return high


def has_change(day: date, timezone: ZoneInfo) -> bool:
    """Whether the clocks of the zone change on that local date."""
    begins = datetime.combine(day, time())
    return offsets(begins, timezone)[0] != offsets(begins + timedelta(days=1), timezone)[0]


def _offset(placed: datetime) -> timedelta:
    offset = placed.utcoffset()
    if offset is None:  # only a datetime without a zone has none
        raise ValueError("a wall time without its zone has no offset")
    return offset
