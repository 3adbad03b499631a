"""What a boot notes on local disk, so that whoever comes after a SIGKILL can find and end what it left.

One file per boot, ``boots/<boot_id>.json`` in the state folder, always replaced whole. A supervisor or a later worker
reads it, proves that the processes are gone, tells the server, and deletes it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from ..kernel.records import Record
from ..leases.boots import boot_id_of
from ..leases.machine import MachineIdentity, ProcessFacts, kernel_boot_id, living_processes, pid_namespace

FOLDER = "boots"
_SHARED = ("machine_id", "kernel_boot_id", "pid_namespace", "pid", "pid_started")


class GroupRecord(Record):
    """The process group of a run: the pid of its leader, and when that started in clock ticks."""

    pgid: int
    started: int


class BootRecord(Record):
    """The file of one boot."""

    boot_id: str
    locations: tuple[str, ...]
    machine_id: str
    kernel_boot_id: str
    pid_namespace: str
    pid: int
    pid_started: int
    groups: dict[str, GroupRecord] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Remains:
    """What is alive of a boot: its processes, or ``unknown`` when this machine cannot tell."""

    processes: tuple[ProcessFacts, ...] = ()
    unknown: bool = False

    @property
    def gone(self) -> bool:
        """Whether the end of the boot and of all that it started is proved."""
        return not self.unknown and not self.processes


class BootFile:
    """The owner's hand on the file of its own boot; safe between threads."""

    def __init__(self, state_dir: Path, boot_id: str, identity: MachineIdentity, locations: Sequence[str]) -> None:
        self._folder = state_dir / FOLDER
        self._lock = threading.Lock()
        self._record = BootRecord(
            boot_id=boot_id,
            locations=tuple(locations),
            machine_id=identity.machine_id,
            kernel_boot_id=identity.kernel_boot_id,
            pid_namespace=identity.pid_namespace,
            pid=identity.pid,
            pid_started=identity.pid_started,
        )

    def open(self) -> None:
        """Write the file; the folder is for this user only."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(self._record)

    def record_group(self, run_id: str, group: int, started: int) -> None:
        """Note the process group of a run's child."""
        with self._lock:
            groups = {**self._record.groups, run_id: GroupRecord(pgid=group, started=started)}
            self._write(self._record.model_copy(update={"groups": groups}))

    def forget_group(self, run_id: str) -> None:
        """The child of that run is reaped."""
        with self._lock:
            groups = {run: group for run, group in self._record.groups.items() if run != run_id}
            self._write(self._record.model_copy(update={"groups": groups}))

    def _write(self, record: BootRecord) -> None:
        path = self._folder / f"{record.boot_id}.json"
        fresh = path.with_suffix(".new")
        fresh.write_text(record.model_dump_json())
        os.replace(fresh, path)  # noqa: PTH105 - the atomic one
        self._record = record


def boot_records(state_dir: Path) -> list[BootRecord]:
    """The files of all boots that nobody has settled; a broken file is left out."""
    found = []
    for path in sorted((state_dir / FOLDER).glob("*.json")):
        try:
            found.append(BootRecord.model_validate(json.loads(path.read_text())))
        except (OSError, ValueError, ValidationError):
            continue
    return found


def record_of_item(item: Mapping[str, Any]) -> BootRecord | None:
    """What a boot's lease item says of its processes, as its file would; ``None`` for an item that does not say it."""
    try:
        return BootRecord.model_validate(
            {
                "boot_id": boot_id_of(item),
                "locations": tuple(item["locations"]),
                "groups": item["process_groups"],
                **{name: item[name] for name in _SHARED},
            }
        )
    except (KeyError, TypeError, ValidationError):
        return None


def joined(records: Sequence[BootRecord]) -> list[BootRecord]:
    """One record a boot, with the process groups of all of its records: what only one of them knows counts, too."""
    found: dict[str, BootRecord] = {}
    for record in records:
        known = found.get(record.boot_id)
        groups = {**known.groups, **record.groups} if known else record.groups
        found[record.boot_id] = record.model_copy(update={"groups": groups})
    return list(found.values())


def settle(state_dir: Path, boot_id: str) -> None:
    """The server knows that this boot ended: delete its file."""
    (state_dir / FOLDER / f"{boot_id}.json").unlink(missing_ok=True)


def remains_of(record: BootRecord, machine_id: str) -> Remains:
    """What is alive of a boot, seen from here.

    Another start of the kernel proves the end; another machine or PID namespace proves nothing.
    """
    kernel = kernel_boot_id()
    if record.machine_id != machine_id or not record.kernel_boot_id or not kernel:
        return Remains(unknown=True)
    if record.kernel_boot_id != kernel:
        return Remains()
    if record.pid_namespace != pid_namespace():
        return Remains(unknown=True)
    living = living_processes()
    return Remains(tuple(facts for facts in living if _belongs(facts, record, {f.pid: f for f in living})))


def _belongs(facts: ProcessFacts, record: BootRecord, by_pid: dict[int, ProcessFacts]) -> bool:
    if (facts.pid, facts.started) == (record.pid, record.pid_started):
        return True
    for group in record.groups.values():
        leader = by_pid.get(group.pgid)
        # A pid is not given out again while it names a session: another leader means that the old one is gone.
        same = leader is None or leader.started == group.started
        if same and facts.session == group.pgid and facts.started >= group.started:
            return True
    return False
