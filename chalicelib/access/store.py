"""Queries of tokens, typed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ..database import Transaction, load_queries
from .model import TokenKind, TokenScope, TokenView
from .secret import hash_of

QUERIES = load_queries(__package__)


def insert_token(
    tx: Transaction, token_id: str, kind: TokenKind, *, secret: str, scope: TokenScope, expires_at: datetime
) -> None:
    """Store a token by the hash of its secret."""
    tx.execute(
        QUERIES["insert_token"],
        token_id=token_id,
        kind=kind,
        secret_hash=hash_of(secret),
        scope=scope.model_dump_json(exclude_defaults=True),
        expires_at=expires_at,
    )


def token_of_secret(tx: Transaction, secret: str) -> TokenView | None:
    """The token that ``secret`` belongs to."""
    row = tx.row(QUERIES["token_by_hash"], secret_hash=hash_of(secret))
    return None if row is None else _view(row)


def note_use(tx: Transaction, token_id: str, every_seconds: int) -> None:
    """Keep the last use, at most once in ``every_seconds``."""
    tx.execute(QUERIES["note_use"], token_id=token_id, every_seconds=every_seconds)


def revoke(tx: Transaction, token_id: str) -> bool:
    """End a token; ``False`` when it had been revoked before."""
    return tx.execute(QUERIES["revoke_token"], token_id=token_id) == 1


def exists(tx: Transaction, token_id: str) -> bool:
    """Whether there is such a token, revoked or not."""
    return tx.row(QUERIES["token_exists"], token_id=token_id) is not None


def end_tokens_of_claim(tx: Transaction, claim_id: str) -> None:
    """End the worker tokens that an earlier accept of this claim gave."""
    tx.execute(QUERIES["end_tokens_of_claim"], claim_id=claim_id)


def tokens_page(tx: Transaction, before: str | None, limit: int) -> list[TokenView]:
    """Tokens of operators and locations, newest first, beginning below ``before``."""
    return [_view(row) for row in tx.rows(QUERIES["tokens_page"], before=before, limit=limit)]


def scope_exists(tx: Transaction, location: str, target: str | None) -> tuple[bool, bool]:
    """Whether the location and (when given) the target of a scope exist."""
    row = tx.rows(QUERIES["scope_exists"], location=location, target=target)[0]
    return row["location"], row["target"]


def _view(row: dict[str, Any]) -> TokenView:
    return TokenView(scope=TokenScope.model_validate(row.pop("scope_json")), **row)
