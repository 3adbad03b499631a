"""Compiles of a worker's projects: owned, interruptible, and shared by the runs that wait for one.

A compile runs code of the project, so its programs have a keeper, as builds have: they end with their worker, and a
run that is to stop does not wait for its compile.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..kernel.clock import Clock
from ..kernel.errors import Drift
from ..kernel.limits import COMPILE_SECONDS
from ..projects.compilation import Compilation
from .accounts import give
from .process import Account, OwnedProcess
from .session import GaveUp

_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class OwnedPrograms:
    """A ``projects.processes.ProgramRunner`` whose programs have a keeper and end when ``stopped`` is set.

    ``environment`` is added to what the compile gives; ``folder`` belongs to ``account`` before a program starts.
    """

    stopped: threading.Event
    clock: Clock
    folder: Path
    environment: Mapping[str, str]
    account: Account | None = None

    def __call__(
        self, argv: Sequence[str], *, cwd: Path, environment: Mapping[str, str], stdout: int, stderr: int
    ) -> int | None:
        """Run to the end. Raises ``GaveUp`` when the run is to stop; then nothing of the program is left."""
        if self.account is not None:
            give(self.folder, self.account)
        process = OwnedProcess(
            argv, environment={**environment, **self.environment}, cwd=cwd, output=stdout, errors=stderr,
            account=self.account,
        )  # fmt: skip
        try:
            process.release()
            return self._wait(process)
        finally:
            process.end_for_sure()

    def _wait(self, process: OwnedProcess) -> int | None:
        deadline = self.clock.elapsed_seconds() + COMPILE_SECONDS
        while (ending := process.wait(_LOOK_SECONDS)) is None:
            if self.stopped.is_set():
                raise GaveUp("stopped while the project was compiled")
            if self.clock.elapsed_seconds() >= deadline:
                return None
        if ending.error is not None:
            raise OSError(errno.ENOENT, ending.error.rpartition(": ")[2])
        return ending.exit_code if ending.exit_code is not None else -(ending.signal or 0)


@dataclass(slots=True)
class _Line:
    """The compiles of one place: how many have begun, whether one runs, and the last result while someone waits."""

    begun: int = 0
    busy: bool = False
    waiting: int = 0
    done: int = 0
    result: Compilation | Drift | None = None


class SharedCompiles:
    """One compile at a time of each place. What began after a run had asked holds for that run too.

    So a burst of runs costs two compiles, not one each, and still every run is verified against what was on disk after
    it arrived.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: dict[tuple[str, ...], _Line] = {}

    def compiled(
        self, place: tuple[str, ...], stopped: threading.Event, compile_now: Callable[[], Compilation]
    ) -> Compilation:
        """The compile of a place. Raises ``Drift`` as ``compile_now`` does, and ``GaveUp`` when ``stopped`` is set."""
        with self._changed:
            line = self._lines.setdefault(place, _Line())
            asked = line.begun
            line.waiting += 1
            try:
                while line.busy and line.done <= asked:
                    if stopped.is_set():
                        raise GaveUp("stopped while another run compiled the project")
                    self._changed.wait(_LOOK_SECONDS)
                if line.done > asked and line.result is not None:
                    return _told(line.result)
            finally:
                self._leave(line)
            line.begun += 1
            line.busy, number = True, line.begun
        return _told(self._lead(line, number, compile_now))

    def _lead(self, line: _Line, number: int, compile_now: Callable[[], Compilation]) -> Compilation | Drift:
        result: Compilation | Drift | None = None
        try:
            result = compile_now()
        except Drift as drift:
            result = drift
        finally:
            with self._changed:
                line.busy = False
                if result is not None and line.waiting:
                    line.done, line.result = number, result
                self._changed.notify_all()
        return result

    def _leave(self, line: _Line) -> None:
        line.waiting -= 1
        if not line.waiting:
            line.result = None  # it may be large


def _told(result: Compilation | Drift) -> Compilation:
    if isinstance(result, Drift):
        raise Drift(result.detail)
    return result
