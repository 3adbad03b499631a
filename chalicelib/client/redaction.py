"""Keeps secrets out of every text that may be shown (S58)."""

from __future__ import annotations

import re

from pydantic import SecretStr

from ..kernel.errors import UsageError

_TOKEN = re.compile(r"\b(tm[a-z])_[A-Za-z0-9_-]{8,}")
_SIGNATURE = re.compile(r"(?i)\b((?:x-amz-[a-z-]*(?:signature|credential|token)|signature|awsaccesskeyid)=)[^&\s\"']+")
_HIDDEN = "[hidden]"


def redacted(text: str, *secrets: str) -> str:
    """``text`` without the given secrets, without anything that looks like a token or a link's signature."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, _HIDDEN)
    return _SIGNATURE.sub(rf"\1{_HIDDEN}", _TOKEN.sub(rf"\1_{_HIDDEN}", text))


def as_secret(token: SecretStr | str | None) -> SecretStr | None:
    """The token, checked: a header can carry it. The error does not show it."""
    if token is None:
        return None
    text = token.get_secret_value() if isinstance(token, SecretStr) else token
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError.of_field("token", "is empty or holds characters that no token has; check the file or variable")
    return SecretStr(text)
