"""``.tidemill/``: where one local stack keeps everything, and the lock that makes it the only one there.

``dev.json`` and ``operator-token`` are how the command line finds the server and may speak to it; both are readable
by their owner only, and written complete or not at all.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from ..kernel.errors import FolderInUse, LocalStackFailed

NAME = ".tidemill"


class LocalFolder:
    """The data folder of one local stack. ``acquire`` before anything else, ``release`` last."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock: int | None = None

    @property
    def postgres(self) -> Path:
        """The embedded Postgres."""
        return self.path / "postgres"

    @property
    def objects(self) -> Path:
        """Objects of the AWS stand-in."""
        return self.path / "objects"

    @property
    def log(self) -> Path:
        """What the parts log, with tracebacks."""
        return self.path / "dev.log"

    @property
    def worker_log(self) -> Path:
        """What the worker process prints."""
        return self.path / "worker.log"

    @property
    def operator_token(self) -> Path:
        """The secret of the local operator."""
        return self.path / "operator-token"

    def location_token(self, location: str) -> Path:
        """The secret with which the local worker and publisher act for a location."""
        return self.path / "tokens" / location

    @property
    def description(self) -> Path:
        """Process id and addresses of the running stack."""
        return self.path / "dev.json"

    def acquire(self) -> None:
        """Make the folder and take its lock. Raises ``FolderInUse`` naming who holds it."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise LocalStackFailed(
                f"the data folder {self.path} cannot be used ({error.strerror}); free it, or choose another one with --data"
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise self._in_use() from None
        self._lock = handle
        # Our files must not make the project's git state dirty.
        (self.path / ".gitignore").write_text("*\n", encoding="utf-8")
        # A killed stack's description must not be taken for ours while we start.
        self.description.unlink(missing_ok=True)

    def release(self) -> None:
        """Remove the description and let the lock go."""
        if self._lock is None:
            return
        self.description.unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = None

    def describe(self, facts: dict[str, Any]) -> None:
        """Write ``dev.json``."""
        write_private(self.description, json.dumps(facts, indent=2) + "\n")

    def read_description(self) -> dict[str, Any]:
        """What ``dev.json`` says; empty when there is none."""
        try:
            facts = json.loads(self.description.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}

    def _in_use(self) -> FolderInUse:
        facts = self.read_description()
        if not facts:
            return FolderInUse(
                f"{self.path} is in use by another tidemill dev that is starting; wait, or choose --data"
            )
        return FolderInUse(
            f"{self.path} is in use by process {facts.get('pid')}, which serves {facts.get('server')}; "
            "use that one, end it with Ctrl-C, or choose another folder with --data",
            facts=facts,
        )


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone may read, complete or not at all."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
