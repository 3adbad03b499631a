"""Where a command goes: server, token, location and target, found by one fixed order.

Server: ``--server``, ``TIDEMILL_SERVER``, the nearest ``.tidemill/dev.json`` upwards. Token: ``--token-file``,
``TIDEMILL_TOKEN`` (only for a server that was named), the local stack's own token (only for the local stack).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from ..kernel.errors import UsageError
from ..kernel.limits import TEXT_FIELD_CHARACTERS

DATA_FOLDER = ".tidemill"
PROJECT_FILE = "tidemill.toml"
_DEV_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Connection:
    """A server and the token for it; ``origin`` says where the address came from."""

    server: str
    token: SecretStr | None
    origin: str


@dataclass(frozen=True, slots=True)
class LocalStack:
    """What ``.tidemill/dev.json`` says about a running ``tidemill dev``."""

    server: str
    folder: Path
    facts: Mapping[str, object]


def find_connection(
    server: str | None, token_file: Path | None, *, environment: Mapping[str, str], folder: Path
) -> Connection:
    """The server to talk to and the token to show it. Raises ``UsageError`` when no server is known."""
    named = server or environment.get("TIDEMILL_SERVER") or None
    stack = find_local_stack(folder)
    token = read_token(token_file) if token_file else None
    if named is None:
        return _local(stack, token)
    origin = "--server" if server else "TIDEMILL_SERVER"
    if token is None and environment.get("TIDEMILL_TOKEN"):
        token = SecretStr(environment["TIDEMILL_TOKEN"].strip())
    if token is None and stack is not None and stack.server == named.rstrip("/"):
        token = _token_of(stack)
    return Connection(named, token, origin)


def find_local_stack(folder: Path) -> LocalStack | None:
    """The nearest local stack of ``folder`` or a folder above it; one that another user made is passed over."""
    for parent in (folder, *folder.parents):
        path = parent / DATA_FOLDER / "dev.json"
        if path.is_file() and path.stat().st_uid in {os.geteuid(), 0}:
            return _read_stack(path)
    return None


def find_project_folder(folder: Path) -> Path | None:
    """The nearest folder upwards that holds a ``tidemill.toml``."""
    return next((parent for parent in (folder, *folder.parents) if (parent / PROJECT_FILE).is_file()), None)


def find_place(location: str | None, target: str | None, *, folder: Path) -> tuple[str | None, str | None]:
    """Location and target: as given, else those of the nearest ``tidemill.toml``, else ``None``."""
    project_folder = None if location and target else find_project_folder(folder)
    if project_folder is None:
        return location, target
    from ..projects.project_file import load_project_file

    project = load_project_file(project_folder)
    return location or project.location, target or project.choose_target(None)[0]


def read_token(path: Path) -> SecretStr:
    """The one token in a file. Raises ``UsageError`` naming the file, never its content."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "not a token"
        raise UsageError.of_field("--token-file", f"{path} cannot be read ({reason})") from None
    if not text or len(text) > TEXT_FIELD_CHARACTERS or len(text.split()) != 1:
        raise UsageError.of_field("--token-file", f"{path} must hold one token and nothing else")
    return SecretStr(text)


def _local(stack: LocalStack | None, token: SecretStr | None) -> Connection:
    if stack is None:
        raise UsageError(
            "no server is known: give --server, set TIDEMILL_SERVER, or run `tidemill dev` in this folder or one above it"
        )
    return Connection(stack.server, token or _token_of(stack), f"{DATA_FOLDER}/dev.json")


def _token_of(stack: LocalStack) -> SecretStr | None:
    path = stack.folder / "operator-token"
    return read_token(path) if path.is_file() else None


def _read_stack(path: Path) -> LocalStack:
    try:
        with path.open(encoding="utf-8") as file:
            facts = json.loads(file.read(_DEV_FILE_BYTES))
        return LocalStack(str(facts["server"]).rstrip("/"), path.parent, facts)
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{path} cannot be read; stop `tidemill dev` there and start it again") from None
