"""Issue, revoke and check tokens."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from ..database import Database, Transaction
from ..kernel.errors import InvalidRequest, NotAuthenticated, NotFound, TokenExpired, TokenRevoked
from ..kernel.ids import IdSource, RandomBits
from ..kernel.limits import LOCATION_TOKEN_SECONDS, TOKEN_MAX_SECONDS, TOKEN_MIN_SECONDS, TOKEN_USE_NOTED_SECONDS
from ..kernel.paging import Page, check_limit, decode_cursor, encode_cursor
from . import store
from .model import IssuedKind, IssuedToken, Principal, TokenScope, TokenView
from .secret import is_well_formed, mint_secret

_LIST = {"list": "tokens"}


class AccessService:
    """Tokens of one installation. ``random`` makes the secrets; a simulation passes a seeded one."""

    def __init__(self, database: Database, ids: IdSource, random: RandomBits | None = None) -> None:
        self._database = database
        self._ids = ids
        self._random = random if random is not None else secrets.SystemRandom()

    def issue(self, kind: IssuedKind, scope: TokenScope, lifetime_seconds: int | None = None) -> IssuedToken:
        """Make a token of that scope; its secret is in the answer and nowhere else.

        ``lifetime_seconds`` is 90 days by default. Raises ``InvalidRequest`` for a scope that does not fit the kind
        and a lifetime out of bounds, ``NotFound`` for a location or target that does not exist.
        """
        _check_scope(kind, scope)
        seconds = _checked_lifetime(lifetime_seconds)
        token_id, secret = self._ids.mint("tok"), mint_secret(kind, self._random)

        def insert(tx: Transaction) -> IssuedToken:
            _check_place(tx, scope)
            expires_at = tx.now + timedelta(seconds=seconds)
            # a repeat after a lost COMMIT reply finds the row of the first attempt
            if not store.exists(tx, token_id):
                store.insert_token(tx, token_id, kind, secret=secret, scope=scope, expires_at=expires_at)
            return IssuedToken(token_id=token_id, secret=secret, expires_at=expires_at)

        return self._database.write(insert)

    def revoke(self, token_id: str) -> bool:
        """End a token at once; ``False`` when it was revoked before. Raises ``NotFound`` for an unknown one."""

        def end(tx: Transaction) -> bool:
            if not store.exists(tx, token_id):
                raise NotFound(f"there is no token {token_id!r}; list them with `tidemill admin token list`")
            return store.revoke(tx, token_id)

        return self._database.write(end)

    def list_tokens(self, limit: int | None = None, cursor: str | None = None) -> Page[TokenView]:
        """Tokens of operators and locations, newest first."""
        size = check_limit(limit)
        before = decode_cursor(_LIST, cursor, 1)[0] if cursor else None
        with self._database.transaction() as tx:
            tokens = store.tokens_page(tx, before, size + 1)
        more = len(tokens) > size
        return Page(tokens[:size], encode_cursor(_LIST, [tokens[size - 1].token_id]) if more else None)

    def authenticate(self, secret: str) -> Principal:
        """The holder of ``secret``. Raises ``NotAuthenticated``, ``TokenRevoked`` or ``TokenExpired``."""
        if not is_well_formed(secret):
            raise NotAuthenticated("the token is not well formed; check that it was copied whole")
        with self._database.transaction() as tx:
            token = store.token_of_secret(tx, secret)
            if token is None:
                raise NotAuthenticated("the token is not known here; check that it was issued by this installation")
            _check_alive(token, tx.now)
            if _use_is_due(token, tx.now):
                store.note_use(tx, token.token_id, TOKEN_USE_NOTED_SECONDS)
        return Principal(
            kind=token.kind, token_id=token.token_id, scope=token.scope, name=f"{token.kind}:{token.token_id}"
        )

    def mint_worker_token(
        self,
        tx: Transaction,
        *,
        run_id: str,
        claim_id: str,
        location: str,
        target: str,
        expires_at: datetime,
        first: bool = False,
    ) -> str:
        """The secret of a token for one claim, made inside the caller's transaction; ends the claim's earlier tokens.

        ``first``: the caller knows that there are none.
        """
        if not tx.now < expires_at <= tx.now + timedelta(seconds=TOKEN_MAX_SECONDS):
            raise ValueError("a worker token expires in the future and within a year")
        scope = TokenScope(location=location, target=target, run_id=run_id, claim_id=claim_id)
        secret = mint_secret("worker", self._random)
        if not first:
            store.end_tokens_of_claim(tx, claim_id)
        store.insert_token(tx, self._ids.mint("tok"), "worker", secret=secret, scope=scope, expires_at=expires_at)
        return secret


def _check_alive(token: TokenView, now: datetime) -> None:
    if token.revoked_at is not None:
        raise TokenRevoked("the token was revoked; ask an administrator for a new one")
    if token.expires_at <= now:
        raise TokenExpired("the token has expired; ask an administrator for a new one")


def _use_is_due(token: TokenView, now: datetime) -> bool:
    return token.last_used_at is None or token.last_used_at <= now - timedelta(seconds=TOKEN_USE_NOTED_SECONDS)


def _check_scope(kind: IssuedKind, scope: TokenScope) -> None:
    if scope.run_id is not None or scope.claim_id is not None:
        raise InvalidRequest.of_field("scope.run_id", "only the token that a worker gets for its claim has a run")
    if kind == "operator":
        if scope != TokenScope():
            raise InvalidRequest.of_field("scope", "an operator's token reaches everything; leave the scope empty")
        return
    if scope.location is None:
        raise InvalidRequest.of_field("scope.location", "a location token names its location")
    if not scope.permissions:
        raise InvalidRequest.of_field("scope.permissions", "give at least one of publish, roles, metadata and work")


def _checked_lifetime(seconds: int | None) -> int:
    if seconds is None:
        return LOCATION_TOKEN_SECONDS
    if not TOKEN_MIN_SECONDS <= seconds <= TOKEN_MAX_SECONDS:
        raise InvalidRequest.of_field("lifetime_seconds", f"use {TOKEN_MIN_SECONDS} to {TOKEN_MAX_SECONDS} (one year)")
    return seconds


def _check_place(tx: Transaction, scope: TokenScope) -> None:
    if scope.location is None:
        return
    location, target = store.scope_exists(tx, scope.location, scope.target)
    if not location:
        raise NotFound.of_field(
            "scope.location", f"there is no location {scope.location!r}; add it with `tidemill admin location add`"
        )
    if not target:
        raise NotFound.of_field(
            "scope.target", f"there is no target {scope.target!r}; set it with `tidemill admin target set`"
        )
