"""The account that builds run as, where a worker is root and they are not (scheduler.md 8.2)."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from ..kernel.errors import UsageError
from .process import Account

_NO_HOME = "/tmp"  # noqa: S108 - a user without a home has no other


def account_named(name: str) -> Account:
    """The account of a user name or ``uid:gid``. Raises ``UsageError`` naming ``TIDEMILL_CHILD_USER``."""
    if os.geteuid() != 0:
        raise _refused("only a worker that runs as root can run builds as another user; leave it empty")
    account = _of(name)
    if account.uid == 0:
        raise _refused("builds under root are what it is to prevent; name another user")
    return account


def _of(name: str) -> Account:
    uid, colon, gid = name.partition(":")
    if colon and uid.isascii() and uid.isdigit() and gid.isascii() and gid.isdigit():
        return Account(int(uid), int(gid), uid, _NO_HOME)
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise _refused(f"there is no user {name!r}; make one, or write UID:GID") from None
    home = entry.pw_dir if Path(entry.pw_dir).is_dir() else _NO_HOME
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name, home)


def _refused(message: str) -> UsageError:
    return UsageError.of_field("TIDEMILL_CHILD_USER", message)


def give(folder: Path, account: Account) -> None:
    """Make ``folder`` and everything in it the account's; links are given, never followed."""
    for place, folders, files in os.walk(folder):
        for name in [".", *folders, *files]:
            os.chown(os.path.join(place, name), account.uid, account.gid, follow_symlinks=False)  # noqa: PTH118 - bytes of a walk


def open_way(state_dir: Path, folder: Path) -> None:
    """Let other accounts pass through to ``folder`` below ``state_dir``, and see nothing on the way."""
    folder.mkdir(parents=True, exist_ok=True)
    while folder != state_dir.parent:
        folder.chmod(0o711)
        folder = folder.parent
