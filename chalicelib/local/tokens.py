"""The secrets of the local stack: made once, kept in files, used again while they are valid."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..access.model import IssuedKind, TokenScope
from ..access.service import AccessService
from ..kernel.errors import NotAuthenticated, TokenExpired, TokenRevoked
from ..kernel.limits import TOKEN_MAX_SECONDS
from .folder import LocalFolder, write_private


def keep_operator_token(access: AccessService, folder: LocalFolder) -> str:
    """The operator's secret; the command line reads it from its file."""
    return _keep(access, folder.operator_token, "operator", TokenScope())


def keep_location_token(access: AccessService, folder: LocalFolder, location: str) -> str:
    """The secret that publishes for a location and works for it."""
    scope = TokenScope(location=location, permissions=("publish", "work"))
    return _keep(access, folder.location_token(location), "location", scope)


def _keep(access: AccessService, path: Path, kind: IssuedKind, scope: TokenScope) -> str:
    with suppress(OSError, UnicodeDecodeError, NotAuthenticated, TokenExpired, TokenRevoked):
        secret = path.read_text(encoding="ascii").strip()
        principal = access.authenticate(secret)
        if (principal.kind, principal.scope) == (kind, scope):
            return secret
    secret = access.issue(kind, scope, TOKEN_MAX_SECONDS).secret
    write_private(path, secret)
    return secret
