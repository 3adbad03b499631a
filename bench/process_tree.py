"""What a tree of processes costs: processor time of all that lived in it, and memory at its worst moment. Linux."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_TICKS = os.sysconf("SC_CLK_TCK")
# Behind the program's name in /proc/<pid>/stat: own user and system time, and that of reaped children.
_TIMES = slice(11, 15)
_LOOK_SECONDS = 0.5


@dataclass(slots=True)
class Cost:
    """``cpu_seconds`` of everything in the tree, ended or not; ``memory_mb`` is the largest sum of what each uses.

    Shared pages are counted once. The memory is looked at twice a second; ``looked`` is set once it was.
    """

    cpu_seconds: float = 0.0
    memory_mb: float = 0.0
    looked: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)


@contextmanager
def measured_tree(*roots: int, look_seconds: float = _LOOK_SECONDS) -> Iterator[Cost]:
    """Measure the trees below ``roots``; the result is complete at the end of the block."""
    cost, over = Cost(), threading.Event()
    before = _cpu_seconds(roots)
    watcher = threading.Thread(target=_watch, args=(roots, cost, over, look_seconds), name="process-tree", daemon=True)
    watcher.start()
    try:
        yield cost
    finally:
        cost.cpu_seconds = _cpu_seconds(roots) - before
        over.set()
        watcher.join()


def tree(*roots: int) -> list[psutil.Process]:
    """The living processes of the trees."""
    found: list[psutil.Process] = []
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(root)
            found += [process, *process.children(recursive=True)]
    return found


def _watch(roots: tuple[int, ...], cost: Cost, over: threading.Event, look_seconds: float) -> None:
    while not over.wait(look_seconds):
        cost.memory_mb = max(cost.memory_mb, sum(_memory_kb(process.pid) for process in tree(*roots)) / 1024)
        cost.looked.set()


def _cpu_seconds(roots: tuple[int, ...]) -> float:
    """A process that ended is in the time of who reaped it, so the living ones hold all of it."""
    return sum(_ticks(process.pid) for process in tree(*roots)) / _TICKS


def _ticks(pid: int) -> int:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return sum(int(field) for field in fields[_TIMES])
    return 0


def _memory_kb(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
