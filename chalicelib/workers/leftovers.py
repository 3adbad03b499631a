"""End what an earlier worker left on this machine, and say which boots are proved ended (scheduler.md 7.3)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..kernel.clock import Clock
from ..kernel.errors import LocalStackFailed
from ..kernel.ids import RandomBits
from ..kernel.limits import LEFTOVER_WAIT_SECONDS
from ..leases.machine import read_identity
from .records import BootRecord, boot_records, joined, record_of_item, remains_of

_LOOK_SECONDS = 0.05
ReadItems = Callable[[str], Iterable[Mapping[str, Any]]]


def end_leftovers(state_dir: Path, clock: Clock, random: RandomBits, spare: int | None = None) -> list[str]:
    """Kill what is left of the boots recorded in ``state_dir``, wait until it is gone; their boot ids.

    Only for a caller that owns the folder alone, such as ``tidemill dev`` under its lock. The caller proves the boots
    ended to the server and then settles each (``records.settle``). ``spare`` is a process to leave alone: the caller,
    where it opened such boots itself. Raises ``LocalStackFailed`` naming a process that does not go.
    """
    machine_id = read_identity(state_dir, random).machine_id
    records = [record for record in boot_records(state_dir) if not remains_of(record, machine_id).unknown]
    for record in records:
        _end(record, machine_id, clock, spare)
    return [record.boot_id for record in records]


def ended_boots(state_dir: Path, random: RandomBits, read_items: ReadItems = lambda _: ()) -> list[str]:
    """The boots of this machine whose processes are all gone, by their files and their lease items; nothing is killed.

    ``read_items`` gives the lease items of the boots of a machine, for a boot whose file is lost or broken.
    """
    machine_id = read_identity(state_dir, random).machine_id

    def gone() -> set[str]:
        items = [record for item in read_items(machine_id) if (record := record_of_item(item)) is not None]
        records = joined([*items, *boot_records(state_dir)])
        return {record.boot_id for record in records if remains_of(record, machine_id).gone}

    # A worker may record a child and die between the reading and the look. Whoever was gone at the first look has
    # written all that it ever will when the second one reads.
    first = gone()
    return sorted(first & gone()) if first else []


def boots_of(state_dir: Path, pid: int, started: int) -> Iterator[BootRecord]:
    """The boots that one worker process opened."""
    return (record for record in boot_records(state_dir) if (record.pid, record.pid_started) == (pid, started))


def _end(record: BootRecord, machine_id: str, clock: Clock, spare: int | None) -> None:
    deadline = clock.elapsed_seconds() + LEFTOVER_WAIT_SECONDS
    while living := [facts.pid for facts in remains_of(record, machine_id).processes if facts.pid != spare]:
        for pid in living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if clock.elapsed_seconds() > deadline:
            pids = ", ".join(str(pid) for pid in living)
            raise LocalStackFailed(f"processes of an earlier worker do not end ({pids}); end them, then start again")
        clock.sleep(_LOOK_SECONDS)
