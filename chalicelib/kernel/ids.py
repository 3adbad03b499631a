"""Typed, prefixed ids, sortable by time (UUIDv7), from a source of time and chance that is passed in.

An id needed for a retry comes from the client instead: 16 to 64 characters of ``[A-Za-z0-9_-]``,
refused when it is anything else, never shortened or hashed silently (scheduler.md 1.4).
"""

from __future__ import annotations

import re
import secrets
from typing import Literal, NewType, Protocol

from .clock import Clock
from .errors import IdInvalid

RunId = NewType("RunId", str)
ClaimId = NewType("ClaimId", str)
BootId = NewType("BootId", str)
SnapshotId = NewType("SnapshotId", str)
TriggerId = NewType("TriggerId", str)

Prefix = Literal["run", "clm", "boot", "evt", "tok", "pub", "req", "can", "own", "rep", "bkf", "res"]

CLIENT_ID_PATTERN = r"^[A-Za-z0-9_-]{16,64}$"
_CLIENT_ID = re.compile(r"[A-Za-z0-9_-]{16,64}")


class RandomBits(Protocol):
    """What ``random.Random`` and ``random.SystemRandom`` share."""

    def getrandbits(self, k: int, /) -> int:
        """``k`` random bits as a whole number."""


class IdSource:
    """Mints ids. Give it a seeded ``random.Random`` and a virtual clock to replay a history."""

    def __init__(self, clock: Clock, random: RandomBits | None = None) -> None:
        self._clock = clock
        self._random = random if random is not None else secrets.SystemRandom()

    def mint(self, prefix: Prefix) -> str:
        """``<prefix>_`` and 32 hexadecimal digits: 48 bits of Unix milliseconds, version, 74 random bits."""
        milliseconds = int(self._clock.now().timestamp() * 1000)
        value = (milliseconds & (1 << 48) - 1) << 80
        value |= 0x7 << 76 | self._random.getrandbits(12) << 64
        value |= 0b10 << 62 | self._random.getrandbits(62)
        return f"{prefix}_{value:032x}"


def check_client_id(field: str, value: str) -> str:
    """Return ``value`` when it is a well-formed client-made id, else raise ``IdInvalid`` naming ``field``."""
    if not _CLIENT_ID.fullmatch(value):
        raise IdInvalid.of_field(field, "use 16 to 64 characters of letters, digits, '_' and '-'")
    return value
