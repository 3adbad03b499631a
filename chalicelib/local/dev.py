"""``tidemill dev``: run the local stack until Ctrl-C."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import FrameType

from ..entrypoints.log import logger as entry_logger
from ..kernel.errors import LocalStackFailed
from ..kernel.limits import STOP_GRACE_SECONDS
from ..projects.project_file import FILE_NAME
from .folder import NAME
from .stack import Addresses, LocalStack, StackOptions
from .troubles import Say

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOG_BYTES, _LOG_FILES = 10 * 1024 * 1024, 2


@dataclass(frozen=True, slots=True)
class DevOptions:
    """The options of the command. Without projects the present folder is one, if it has a project file."""

    projects: tuple[Path, ...] = ()
    data: Path = Path(NAME)
    port: int = 0
    database_url: str | None = None
    aws_endpoint: str | None = None
    slots: int = 2
    worker: bool = True

    def for_stack(self) -> StackOptions:
        """What the stack is to run."""
        return StackOptions(
            data=self.data,
            projects=self.projects or default_projects(Path.cwd()),
            port=self.port,
            database_url=self.database_url,
            aws_endpoint=self.aws_endpoint,
            slots=self.slots,
            worker=self.worker,
        )


def default_projects(folder: Path) -> tuple[Path, ...]:
    """``folder`` itself when it is a project."""
    return (folder,) if (folder / FILE_NAME).is_file() else ()


def run_dev(options: DevOptions, say: Say) -> int:
    """Start, wait for SIGINT, SIGTERM or SIGHUP, stop everything; 0. Raises the error of what cannot start."""
    stack = LocalStack(options.for_stack(), say)
    with _interrupting(say) as stopping, _logging_to(options.data / "dev.log"):
        try:
            _show(stack.start(), options, say)
            threading.Event().wait()
        except KeyboardInterrupt:
            say(f"stopping; a run in progress has {STOP_GRACE_SECONDS} s to finish, then it is interrupted")
        except OSError as error:
            raise LocalStackFailed(
                f"the local stack cannot go on: {error}; free what it needs and start it again"
            ) from error
        finally:
            stopping.set()
            stack.stop()
    say("stopped")
    return 0


def _show(addresses: Addresses, options: DevOptions, say: Say) -> None:
    say(f"Tidemill runs at {addresses.server} (API: {addresses.server}/v1)")
    say(f"  Postgres  {addresses.database_url}")
    say(f"  AWS       {addresses.aws_endpoint}")
    say(f"  data      {options.data.absolute()}")
    say("Commands in this folder find it by themselves, such as `tidemill runs list`. Ctrl-C stops everything.")


@contextmanager
def _interrupting(say: Say) -> Iterator[threading.Event]:
    """Signals interrupt the start and the wait; once stopping has begun they are only answered."""
    stopping = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        if stopping.is_set():
            say("stopping already")
            return
        stopping.set()
        raise KeyboardInterrupt

    # Who starts us with nohup wants to outlive the terminal.
    wanted = [number for number in _SIGNALS if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield stopping
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """What libraries and entry points log goes to a file: stderr is for what a person wants to read."""
    file = RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8", delay=True)
    file.setFormatter(entry_logger.registered_formatter)
    root, ours = logging.getLogger(), logging.getLogger(entry_logger.name)
    own_handlers, propagate = ours.handlers, ours.propagate
    ours.handlers, ours.propagate = [], True
    root.addHandler(file)
    try:
        yield
    finally:
        root.removeHandler(file)
        ours.handlers, ours.propagate = own_handlers, propagate
        file.close()
