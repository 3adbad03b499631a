"""Who a process is on which machine, so that a later boot can prove that it is gone (scheduler.md 7.3). Linux."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..kernel.canonical import sha256_text
from ..kernel.ids import RandomBits

_PROC = Path("/proc")
_HOST_ID = Path("/etc/machine-id")
_KERNEL_BOOT = _PROC / "sys/kernel/random/boot_id"
_RANDOM_PART = "machine-random"
_RANDOM_BITS = 128
# Fields of /proc/<pid>/stat behind the program's name (man 5 proc): state, ppid, pgrp, session ... starttime.
_STATE, _PARENT, _GROUP, _SESSION, _STARTED = 0, 1, 2, 3, 19
_ENDED = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One living process. ``started`` is clock ticks since the kernel's boot; with the pid it names one process."""

    pid: int
    parent: int
    group: int
    session: int
    started: int


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """This process on this machine.

    ``machine_id`` joins the host's id with a random one kept on local disk, because images and clones share the first.
    """

    machine_id: str
    kernel_boot_id: str
    pid_namespace: str
    pid: int
    pid_started: int


def read_identity(state_dir: Path, random: RandomBits) -> MachineIdentity:
    """The identity of the calling process; makes the random part in ``state_dir`` at the first call."""
    facts = process_facts(os.getpid())
    return MachineIdentity(
        machine_id=sha256_text(f"{_host_id()}\n{_random_part(state_dir, random)}"),
        kernel_boot_id=kernel_boot_id(),
        pid_namespace=pid_namespace(),
        pid=os.getpid(),
        pid_started=facts.started if facts is not None else 0,
    )


def kernel_boot_id() -> str:
    """The id of this start of the kernel; empty where there is none."""
    return _text(_KERNEL_BOOT)


def pid_namespace() -> str:
    """The PID namespace of this process, such as ``pid:[4026531836]``."""
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def process_facts(pid: int) -> ProcessFacts | None:
    """The facts of a living process, or ``None``: it is gone, or a zombie that only waits to be reaped."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name stands in parentheses and may hold spaces and parentheses of its own.
    fields = text.rpartition(")")[2].split()
    if fields[_STATE] in _ENDED:
        return None
    return ProcessFacts(pid, int(fields[_PARENT]), int(fields[_GROUP]), int(fields[_SESSION]), int(fields[_STARTED]))


def living_processes() -> list[ProcessFacts]:
    """All processes that this one can see."""
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    return [facts for pid in pids if (facts := process_facts(pid)) is not None]


def _host_id() -> str:
    return _text(_HOST_ID) or os.uname().nodename


def _random_part(state_dir: Path, random: RandomBits) -> str:
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = state_dir / _RANDOM_PART
    fresh = state_dir / f"{_RANDOM_PART}.{os.getpid()}"
    if not kept.exists():
        fresh.write_text(f"{random.getrandbits(_RANDOM_BITS):032x}")
        try:
            os.link(fresh, kept)  # two first starts at once agree on one
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return _text(kept)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
