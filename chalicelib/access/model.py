"""Records of tokens and of who holds one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..kernel.records import KEY_PATTERN, Instant, Record

Key = Annotated[str, Field(pattern=KEY_PATTERN)]
TokenKind = Literal["operator", "location", "worker"]
IssuedKind = Literal["operator", "location"]
Grant = Literal["publish", "roles", "metadata", "work"]


class TokenScope(Record):
    """What a token reaches. An operator's is empty, which stands for everything.

    A location token has ``location``, perhaps ``target`` (none: every target), and ``permissions``.
    A worker token has ``location``, ``target``, ``run_id`` and ``claim_id``.
    """

    location: Key | None = None
    target: Key | None = None
    permissions: tuple[Grant, ...] = ()
    run_id: str | None = None
    claim_id: str | None = None


class Principal(Record):
    """Who calls: the holder of the token ``token_id``. ``name`` stands in what the caller asked for."""

    kind: TokenKind
    token_id: str
    scope: TokenScope
    name: str


class IssuedToken(Record):
    """A new token. ``secret`` is shown this once; it is left out of every representation."""

    token_id: str
    secret: str = Field(repr=False)
    expires_at: Instant


class TokenView(Record):
    """A token as administrators see it; ``last_used_at`` is kept to the minute."""

    token_id: str
    kind: TokenKind
    scope: TokenScope
    expires_at: Instant
    revoked_at: Instant | None
    last_used_at: Instant | None
