"""One text for one value, and its digest: what makes a snapshot id independent of time, host and path."""

from __future__ import annotations

import hashlib
import json


def canonical_json(value: object) -> str:
    """Sorted keys, no spaces, UTF-8 as it is; a NaN or an infinity raises ``ValueError``."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_text(text: str) -> str:
    """Lower-case hexadecimal SHA-256 of the UTF-8 bytes of ``text``."""
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_bytes(data: bytes) -> str:
    """Lower-case hexadecimal SHA-256 of ``data``."""
    return hashlib.sha256(data).hexdigest()


def digest_of(value: object) -> str:
    """SHA-256 of the canonical JSON of ``value``."""
    return sha256_text(canonical_json(value))
