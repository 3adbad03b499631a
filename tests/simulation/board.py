"""Who runs: simulated processes that take turns, and the faults that strike them.

Exactly one process runs at any time. A process is a plain call of the product; where it touches the outside (a
transaction, a send, a conditional write) the wrapped object asks the board, and the board may kill the process there,
fail the call, lose its reply, or pause the process and let others go on. Only a process that will be paused needs a
thread of its own, as a stack to be kept; the turn is handed over, so nothing ever runs beside anything else.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from tests.simulation.clock import WorldClock
from tests.simulation.trace import Trace

Result = TypeVar("Result")
When = Literal["before", "after"]
What = Literal["crash", "error", "pause"]
OPERATION_SECONDS = 0.001


class Crashed(BaseException):
    """The process died here. No ``except Exception`` of the product may catch it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens at the ``operation``-th touch of the outside by a process, counted from 0."""

    operation: int
    when: When
    what: What
    pause_seconds: float = 0.0


@dataclass(slots=True)
class Process:
    """One call of the product by one machine. ``chance`` is its own, so that other steps do not change it.

    ``ran`` are the names of the statements that it has committed.
    """

    name: str
    chance: random.Random
    faults: tuple[Fault, ...] = ()
    operations: int = 0
    struck: int = 0
    ran: set[str] = field(default_factory=set)
    may_wait: bool = False
    waits: bool = False
    # Waits shorter than this are put together: a look every few seconds needs no turn each half second.
    grain_seconds: float = 0.0
    owed_seconds: float = 0.0
    dead: bool = False
    done: bool = False
    error: BaseException | None = None
    resume_at: float = 0.0
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    @property
    def clean(self) -> bool:
        """Whether no fault has struck it."""
        return self.struck == 0


class Board:
    """Runs processes one at a time. ``errors_now`` lets a dependency be down for everybody for a while."""

    def __init__(self, clock: WorldClock, trace: Trace) -> None:
        self.clock = clock
        self.trace = trace
        self.paused: list[Process] = []
        self._idle = Process("world", random.Random(0))
        self._current: Process = self._idle
        self._main = threading.Semaphore(0)

    @property
    def current(self) -> Process:
        """The process whose turn it is."""
        return self._current

    # --- the simulation's side

    def run(self, process: Process, call: Callable[[], None]) -> None:
        """Run a call until it ends, dies, is paused or waits."""
        if process.may_wait or any(fault.what == "pause" for fault in process.faults):
            threading.Thread(target=self._on_thread, args=(process, call), daemon=True).start()
            self._hand_over(process)
            return
        before, self._current = self._current, process
        try:
            self._guarded(process, call)
        finally:
            self._current = before
        self._raise(process)

    def as_process(self, process: Process, call: Callable[[], Result]) -> Result:
        """A call that no fault strikes, with the chance of that process."""
        before, self._current = self._current, process
        try:
            return call()
        finally:
            self._current = before

    def next_resume_at(self) -> float | None:
        """When the next paused process goes on."""
        return min((process.resume_at for process in self.paused), default=None)

    def resume_due(self) -> None:
        """Let every paused process go on whose time has come, the earliest first."""
        while due := [process for process in self.paused if process.resume_at <= self.clock.elapsed_seconds()]:
            self._resume(min(due, key=lambda process: process.resume_at))

    def calm(self) -> None:
        """No fault from here on: who was held up goes on now, who only waits goes on when its time has come."""
        for process in self.paused:
            process.faults = ()
            if not process.waits:
                process.resume_at = self.clock.elapsed_seconds()
        self.resume_due()

    def abandon(self) -> None:
        """End every paused process; used after a violation, so that no thread is left."""
        for process in self.paused:
            process.dead = True
        while self.paused:
            process = self.paused.pop(0)
            self._current = process
            process.turn.release()
            self._main.acquire()
        self._current = self._idle

    def _resume(self, process: Process) -> None:
        self.paused.remove(process)
        self._hand_over(process)

    def _hand_over(self, process: Process) -> None:
        before, self._current = self._current, process
        process.turn.release()
        self._main.acquire()
        self._current = before
        if process.done:
            self._raise(process)

    def _on_thread(self, process: Process, call: Callable[[], None]) -> None:
        process.turn.acquire()
        self._guarded(process, call)
        self._main.release()

    def _guarded(self, process: Process, call: Callable[[], None]) -> None:
        try:
            call()
        except Crashed:
            self.trace.add("died", process.name)
        except BaseException as error:  # noqa: BLE001 - handed to the simulation
            process.error = error
        process.done = True

    def _raise(self, process: Process) -> None:
        if process.error is not None:
            error, process.error = process.error, None
            raise error

    # --- the process's side

    @contextmanager
    def operation(self, label: str, lost: Callable[[], Exception]) -> Iterator[None]:
        """One touch of the outside; ``lost`` makes the error of a call that failed or whose reply was lost."""
        number = self.enter(label)
        self.before_effect(number, label, lost)
        yield
        self.after_effect(number, label, lost)

    def enter(self, label: str) -> int:
        """Begin an operation: here a process may be held up. Returns its number."""
        process = self._current
        number = process.operations
        process.operations += 1
        self._point(number, label, RuntimeError, lambda fault: fault.when == "before" and fault.what == "pause")
        return number

    def before_effect(self, number: int, label: str, lost: Callable[[], Exception]) -> None:
        """Nothing of the operation is to be seen yet: it may fail, or its process die."""
        self._point(number, label, lost, lambda fault: fault.when == "before" and fault.what != "pause")

    def after_effect(self, number: int, label: str, lost: Callable[[], Exception]) -> None:
        """The operation is done, and its process does not know it yet."""
        self.clock.advance(OPERATION_SECONDS)
        self._point(number, label, lost, lambda fault: fault.when == "after")

    def _point(self, number: int, label: str, lost: Callable[[], Exception], applies: Callable[[Fault], bool]) -> None:
        process = self._current
        self._check(process)
        for fault in process.faults:
            if fault.operation == number and applies(fault):
                self._strike(process, fault, label, lost)

    def _strike(self, process: Process, fault: Fault, label: str, lost: Callable[[], Exception]) -> None:
        process.faults = tuple(other for other in process.faults if other is not fault)
        process.struck += 1
        self.trace.add("fault", process.name, fault.what, fault.when, label)
        if fault.what == "crash":
            process.dead = True
            raise Crashed
        if fault.what == "error":
            raise lost()
        self._pause(process, fault.pause_seconds)
        self.trace.add("resume", process.name)

    def sleep(self, seconds: float) -> None:
        """A process waits on its own clock; others go on meanwhile."""
        process = self._current
        self._check(process)
        if not process.may_wait:
            raise RuntimeError(f"{process.name} waits, and its kind was not known to wait")
        process.owed_seconds += seconds
        if process.owed_seconds < process.grain_seconds:
            return
        seconds, process.owed_seconds = process.owed_seconds, 0.0
        process.waits = True
        self._pause(process, seconds)
        process.waits = False

    def _pause(self, process: Process, seconds: float) -> None:
        process.resume_at = self.clock.elapsed_seconds() + seconds
        self.paused.append(process)
        self._main.release()
        process.turn.acquire()
        self._check(process)

    def _check(self, process: Process) -> None:
        # A dead process does nothing more, not even in its own clean-up.
        if process.dead:
            raise Crashed


class CurrentChance:
    """``kernel.ids.RandomBits`` of whichever process runs: dropping a step leaves the ids of the others alone."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def getrandbits(self, k: int, /) -> int:
        return self._board.current.chance.getrandbits(k)
