"""The stack of the soak, and the ways in which its parts are killed: always by SIGKILL, always in the middle of work."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from tests.e2e.dev import Dev, wait_for

from .process_tree import tree
from .store import WORK

SLOTS = 6
_START_SECONDS = 120


class SoakStack:
    """``tidemill dev`` with its AWS stand-in outside, until the stand-in is killed; from then on it has its own.

    So at first a kill of the API leaves leases and messages where they are, and later it takes them with it.
    """

    def __init__(self, project: Path) -> None:
        self._project = project
        self._port = _free_port()
        self._moto: subprocess.Popen[str] | None = None
        self.kills: Counter[str] = Counter()
        self.dev = Dev(project)

    def start(self) -> None:
        """Start the stand-in and the stack; returns when the jobs are published."""
        command = [sys.executable, "-m", "bench.moto_process", "0"]
        self._moto = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=WORK.parent, start_new_session=True
        )
        address = self._moto.stdout.readline().strip() if self._moto.stdout is not None else ""
        self._start_dev("--aws-endpoint", address)
        self.dev.published(_START_SECONDS)

    def kinds(self) -> Mapping[str, Callable[[], None]]:
        """What can be killed, by name."""
        return {
            "worker": self._kill_worker,
            "child": self._kill_child,
            "api": self._kill_api,
            "postgres": self._kill_postgres,
            "moto": self._kill_moto,
        }

    def kill(self, kind: str) -> None:
        """Kill a part, and bring back what does not come back by itself."""
        self.kinds()[kind]()
        self.kills[kind] += 1

    def stop(self) -> None:
        """Stop everything, in order where that still works."""
        if self.dev_runs():
            with suppress(subprocess.TimeoutExpired):
                self.dev.stop(signal.SIGINT)
        for process in self.dev.processes():
            with suppress(psutil.Error):
                process.kill()
        self._end_moto()

    def dev_runs(self) -> bool:
        """Whether the process of ``tidemill dev`` lives."""
        return hasattr(self.dev, "process") and self.dev.process.poll() is None

    def _start_dev(self, *arguments: str) -> None:
        self._arguments = arguments
        self.dev = Dev(self._project, "--slots", str(SLOTS), "--port", str(self._port), *arguments)
        self.dev.start(_START_SECONDS)

    def _kill_worker(self) -> None:
        self.dev.worker().kill()

    def _kill_child(self) -> None:
        """A build with its keeper, so that nobody saw how it ended."""
        for process in tree(self.dev.worker().pid)[1:2]:
            with suppress(psutil.Error):
                process.kill()

    def _kill_api(self) -> None:
        self.dev.kill()
        self._start_dev(*self._arguments)

    def _kill_postgres(self) -> None:
        lines = (self._project / ".tidemill/postgres/data/postmaster.pid").read_text(encoding="utf-8").splitlines()
        os.kill(int(lines[0]), signal.SIGKILL)

    def _kill_moto(self) -> None:
        """Every lease and every message is gone, and with it whoever had them in hand."""
        self._end_moto()
        self.dev.kill()
        self._start_dev()

    def _end_moto(self) -> None:
        if self._moto is not None:
            self._moto.kill()
            self._moto.wait()
            if self._moto.stdout is not None:
                self._moto.stdout.close()
            self._moto = None


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_until_true(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait; ``RuntimeError`` when it does not come true."""
    try:
        wait_for(condition, seconds, what)
    except AssertionError as error:
        raise RuntimeError(str(error)) from None
