"""Keep the embedded Postgres alive: when it was killed it is started again, at the same address."""

from __future__ import annotations

import threading

from .postgres import EmbeddedPostgres
from .pump import back_off_seconds
from .troubles import Say, Troubles

_LOOK_SECONDS = 0.2
_JOIN_SECONDS = 60.0


class PostgresGuard:
    """A thread that looks a few times a second."""

    def __init__(self, postgres: EmbeddedPostgres, say: Say) -> None:
        self._postgres = postgres
        self._say = say
        self._troubles = Troubles(say)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="postgres-guard", daemon=True)

    def start(self) -> None:
        """Watch from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; a start in progress is waited for, so that no server is left behind."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            if not self._postgres.is_running():
                self._say("Postgres ended unexpectedly; starting it again")
                self._start_again()

    def _start_again(self) -> None:
        while not self._stop.is_set():
            try:
                self._postgres.start()
            except Exception as error:  # noqa: BLE001  # a full disk may be freed
                self._stop.wait(back_off_seconds(self._troubles.failed("starting Postgres", error)))
            else:
                self._troubles.worked("starting Postgres")
                self._say("Postgres runs again; committed work is all there")
                return
