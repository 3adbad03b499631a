"""Secrets of tokens: ``tml_`` and 43 characters of base62 (256 random bits) and a 6-character checksum.

The prefix lets a scanner find a leaked secret; the checksum lets scanner and server tell a secret from a typing error
without a look-up. The checksum protects nothing: CRC-32 is enough for that.
"""

from __future__ import annotations

import re
import string
import zlib
from collections.abc import Mapping

from ..kernel.canonical import sha256_text
from ..kernel.ids import RandomBits
from .model import TokenKind

PREFIXES: Mapping[TokenKind, str] = {"operator": "tmo_", "location": "tml_", "worker": "tmw_"}

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_BITS, _BODY_DIGITS, _CHECKSUM_DIGITS = 256, 43, 6
_FORM = re.compile(rf"(tm[olw]_[0-9A-Za-z]{{{_BODY_DIGITS}}})([0-9A-Za-z]{{{_CHECKSUM_DIGITS}}})")


def mint_secret(kind: TokenKind, random: RandomBits) -> str:
    """A new secret of 256 random bits."""
    body = PREFIXES[kind] + _base62(random.getrandbits(_BITS), _BODY_DIGITS)
    return body + _checksum(body)


def is_well_formed(secret: str) -> bool:
    """Whether ``secret`` has the form of one of ours and its checksum is right."""
    match = _FORM.fullmatch(secret)
    return match is not None and _checksum(match[1]) == match[2]


def hash_of(secret: str) -> str:
    """What is stored: the SHA-256. 256 random bits need neither salt nor stretching."""
    return sha256_text(secret)


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECKSUM_DIGITS)


def _base62(number: int, digits: int) -> str:
    text = ""
    for _ in range(digits):
        number, digit = divmod(number, len(_ALPHABET))
        text = _ALPHABET[digit] + text
    return text
