"""Runs the worker as a child, restarts it, and proves the end of each boot (scheduler.md 7.3, 8.2).

The worker lives under a keeper, which is a subreaper: when the worker ends, however that happens, every descendant is
killed and reaped before the keeper itself ends. Only then is the boot reported ended. When the supervisor dies, the
keeper ends everything.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import SecretStr

from ..kernel.clock import Clock
from ..kernel.errors import TidemillError
from ..kernel.ids import RandomBits
from ..kernel.limits import LAST_REPORT_ATTEMPTS, SUPERVISOR_RESTART_SECONDS, TERMINATE_GRACE_SECONDS
from .guardian import SUPERVISED
from .leftovers import end_leftovers
from .pace import Pace
from .process import OwnedProcess
from .records import settle
from .server import verdict_of
from .session import Backoff

_LOGGER = logging.getLogger("tidemill.supervisor")
TOKEN_FILE = "TIDEMILL_TOKEN_FILE"  # noqa: S105 - the name of a variable
_LOOK_SECONDS = 0.2
_STOP_SECONDS = float(Pace().drain_seconds)
_STDERR = 2


class Supervisor:
    """One supervised worker. It owns ``state_dir`` alone, the boots recorded in it included.

    ``prove_ended`` tells the server that a boot ended and raises what the server answers; it is called until it is
    answered. ``tokens`` reach the worker through a pipe, never by argument, environment or file. ``output`` is the
    descriptor for what the worker prints.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        state_dir: Path,
        prove_ended: Callable[[str], object],
        environment: Mapping[str, str],
        tokens: Sequence[SecretStr],
        clock: Clock,
        random: RandomBits,
        output: int = _STDERR,
        stop_seconds: float = _STOP_SECONDS,
        restart_seconds: float = SUPERVISOR_RESTART_SECONDS,
    ) -> None:
        self._command = tuple(command)
        self._state_dir = state_dir
        self._prove_ended = prove_ended
        self._environment = dict(environment)
        self._tokens = tuple(tokens)
        self._clock = clock
        self._random = random
        self._output = output
        self._stop_seconds = stop_seconds
        self._restart_seconds = restart_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker-supervisor", daemon=True)
        self.starts = 0

    def start(self) -> None:
        """Start the worker, and start it again whenever it ends."""
        self._thread.start()

    def request_stop(self) -> None:
        """Ask the worker to stop; returns at once."""
        self._stopping.set()

    def stop(self) -> None:
        """Stop the worker in its own order, and by force after ``stop_seconds``; returns when nothing is left of it."""
        self.request_stop()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._one_worker()
            self._settle_boots()
            self._stopping.wait(self._restart_seconds)

    def _one_worker(self) -> None:
        reader = self._token_pipe()
        try:
            process = OwnedProcess(
                self._command,
                environment={**self._environment, TOKEN_FILE: f"/dev/fd/{reader}", SUPERVISED: "1"},
                cwd=Path.cwd(),
                output=self._output,
                inherited=(reader,),
                end_orphans=True,
            )
        except OSError as error:
            _LOGGER.error("the worker cannot be started: %s", error)  # noqa: TRY400 - the reason is enough
            return
        finally:
            os.close(reader)
        self.starts += 1
        process.release()
        ending = self._watch(process)
        if not self._stopping.is_set():
            _LOGGER.warning("the worker ended (%s); it is started again", ending)

    def _watch(self, process: OwnedProcess) -> str:
        kill_at: float | None = None
        while (ending := process.wait(_LOOK_SECONDS)) is None:
            if not self._stopping.is_set():
                continue
            now = self._clock.elapsed_seconds()
            if kill_at is None:
                kill_at = now + self._stop_seconds
                process.terminate()
            elif now >= kill_at:
                process.kill()
                kill_at = now + TERMINATE_GRACE_SECONDS
        return ending.error or f"exit code {ending.exit_code}, signal {ending.signal}"

    def _settle_boots(self) -> None:
        """Everything of the boots in the folder is gone, or is ended now; tell the server."""
        try:
            boots = end_leftovers(self._state_dir, self._clock, self._random)
        except TidemillError as error:
            _LOGGER.error("%s", error.detail)  # noqa: TRY400 - the reason is enough
            return
        for boot_id in boots:
            if prove(self._prove_ended, boot_id, self._random, self._stopping):
                settle(self._state_dir, boot_id)

    def _token_pipe(self) -> int:
        reader, writer = os.pipe()
        with os.fdopen(writer, "w") as stream:
            stream.writelines(f"{token.get_secret_value()}\n" for token in self._tokens)
        return reader


def prove(prove_ended: Callable[[str], object], boot_id: str, random: RandomBits, stopping: threading.Event) -> bool:
    """Tell the server that a boot ended until it answers; when stopping, only a few times. Whether it took it."""
    backoff, tries = Backoff(random), 0
    while True:
        tries += 1
        try:
            prove_ended(boot_id)
        except TidemillError as error:
            if verdict_of(error) != "transient":
                _LOGGER.error("boot %s: its end is refused: %s", boot_id, error.detail)  # noqa: TRY400 - as above
                return False
            if stopping.is_set() and tries >= LAST_REPORT_ATTEMPTS:
                return False
            stopping.wait(backoff.next_seconds())
        else:
            return True
