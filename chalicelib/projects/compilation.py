"""The result of one compile: a bundle, with what belongs to the target and to this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .bundle import Bundle, SnapshotIndex
from .graph import CompileWarning


@dataclass(frozen=True, slots=True)
class Compilation:
    """A bundle with what belongs to the target and to this machine, which is no part of the snapshot.

    ``settle_seconds`` and ``single_writer`` are the target's; ``connection_fingerprint`` is a hash of adapter, account
    or host, and database (``None`` without a tool); ``python`` is the interpreter that was used.
    """

    bundle: Bundle
    project_dir: Path
    location: str
    target: str
    python: Path | None
    single_writer: bool
    warehouse: str
    settle_seconds: int
    connection_fingerprint: str | None
    warnings: tuple[CompileWarning, ...]

    @property
    def index(self) -> SnapshotIndex:
        """The index of the bundle."""
        return self.bundle.index

    @property
    def snapshot_id(self) -> str:
        """The id of the snapshot that publishing this makes."""
        return self.bundle.snapshot_id
