"""End what an earlier worker left on this machine, and say which boots are proved ended (scheduler.md 7.3)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..kernel.clock import Clock
from ..kernel.errors import LocalStackFailed
from ..kernel.ids import RandomBits
from ..kernel.limits import LEFTOVER_WAIT_SECONDS
from ..leases.machine import read_identity
from .records import BootRecord, boot_records, remains_of

_LOOK_SECONDS = 0.05


def end_leftovers(state_dir: Path, clock: Clock, random: RandomBits) -> list[str]:
    """Kill what is left of the boots recorded in ``state_dir``, wait until it is gone; their boot ids.

    Only for a caller that owns the folder alone, such as ``tidemill dev`` under its lock. The caller proves the boots
    ended to the server and then settles each (``records.settle``). Raises ``LocalStackFailed`` naming a process that
    does not go.
    """
    machine_id = read_identity(state_dir, random).machine_id
    records = [record for record in boot_records(state_dir) if not remains_of(record, machine_id).unknown]
    for record in records:
        _end(record, machine_id, clock)
    return [record.boot_id for record in records]


def ended_boots(state_dir: Path, random: RandomBits) -> list[str]:
    """The boots recorded in ``state_dir`` whose processes are all gone; nothing is killed."""
    machine_id = read_identity(state_dir, random).machine_id
    return [record.boot_id for record in boot_records(state_dir) if remains_of(record, machine_id).gone]


def boots_of(state_dir: Path, pid: int, started: int) -> Iterator[BootRecord]:
    """The boots that one worker process opened."""
    return (record for record in boot_records(state_dir) if (record.pid, record.pid_started) == (pid, started))


def _end(record: BootRecord, machine_id: str, clock: Clock) -> None:
    deadline = clock.elapsed_seconds() + LEFTOVER_WAIT_SECONDS
    while not (remains := remains_of(record, machine_id)).gone:
        for facts in remains.processes:
            with suppress(ProcessLookupError):
                os.kill(facts.pid, signal.SIGKILL)
        if clock.elapsed_seconds() > deadline:
            pids = ", ".join(str(facts.pid) for facts in remains.processes)
            raise LocalStackFailed(f"processes of an earlier worker do not end ({pids}); end them, then start again")
        clock.sleep(_LOOK_SECONDS)
