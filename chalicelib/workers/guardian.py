"""The process above an unsupervised worker, and PID 1 of its container (scheduler.md 8.1, 8.2).

It forwards the signals that ask to stop, reaps orphans, ends at once what lost its own keeper, and ends everything when
the worker ends. It forks while there is one thread only, so nothing runs in between that a fork does not stand.
"""

from __future__ import annotations

import os
import signal
from collections.abc import MutableMapping
from contextlib import suppress
from types import FrameType

from .keeper import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, end_descendants, prctl, reap_until

SUPERVISED = "TIDEMILL_SUPERVISED"
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SIGNALLED = 128


def be_guarded(environment: MutableMapping[str, str]) -> bool:
    """Return in a child of a new guardian, or ``True`` at once below a supervisor, whose keeper does the same.

    The guardian itself never returns: it exits with the worker's exit code, or 128 and the number of its signal.
    """
    if environment.pop(SUPERVISED, None) is not None:
        return True
    guardian = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    worker = os.fork()
    if worker != 0:
        os._exit(_guard(worker))
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    if os.getppid() != guardian:
        os._exit(_SIGNALLED + signal.SIGKILL)
    return False


def _guard(worker: int) -> int:
    prctl(PR_SET_CHILD_SUBREAPER, 1)

    def forward(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(worker, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    ending = reap_until(worker, end_orphans=True)
    end_descendants()
    return ending["exit"] if "exit" in ending else _SIGNALLED + ending["signal"]
