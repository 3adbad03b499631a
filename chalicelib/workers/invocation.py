"""The worker of a Lambda: one run per invocation, and the invocation is the boot (scheduler.md 1.2, 8.1, 8.2).

The environment is frozen between invocations and may be used again, so nothing of a run may be left in it: the handler's
first act is to end what an earlier invocation left, and its last to end its own child.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn, Protocol

from ..cloud.ports import QueueMessage
from ..kernel.errors import TidemillError
from ..kernel.limits import LAMBDA_LAST_CALL_SECONDS, LAMBDA_MARGIN_SECONDS
from ..leases.machine import read_identity
from .boot import Ground, LeaseTables, OpenBoot
from .intake import QUEUES, Intake, RunQueue, named_run
from .leftovers import end_leftovers
from .records import boot_records, remains_of, settle
from .server import WorkerApi

_LOGGER = logging.getLogger("tidemill.worker")


class InvocationCloud(LeaseTables, Protocol):
    """What an invocation needs of AWS; ``cloud.aws.Aws`` has it."""

    @property
    def queues(self) -> RunQueue:
        """The run queues, to show a message again."""


class MessageLeft(Exception):  # noqa: N818 - a signal to Lambda, not an error
    """The message stays in the queue for another try."""


@dataclass(frozen=True, slots=True)
class LambdaWorker:
    """Carries the run of one message. ``exit_process`` ends the environment, so that the next message gets a fresh one.

    ``connect`` opens the server's API for one invocation; no call goes on after the given number of seconds. In the last
    ``last_call_seconds`` of an invocation nothing is waited for any more.
    """

    ground: Ground
    cloud: InvocationCloud
    connect: Callable[[float], AbstractContextManager[WorkerApi]]
    exit_process: Callable[[], NoReturn]
    last_call_seconds: float = LAMBDA_LAST_CALL_SECONDS

    def handle(self, message: QueueMessage, request_id: str, seconds_left: Callable[[], float]) -> None:
        """Carry the run to its end; returning deletes the message, as Lambda does with a batch of one.

        ``seconds_left`` is what the platform still gives. Raises ``MessageLeft`` when the run is not ours to end.
        """
        with self.connect(seconds_left() - self.last_call_seconds / 2) as api:
            named = named_run(message)
            if self._end_leftovers(api, named[0] if named else None):
                self._leave_environment(message)
            boot = OpenBoot(self.ground, self.cloud, kind="lambda", started_ref=request_id, seconds_left=seconds_left)
            with _time_limits(seconds_left, boot, self.last_call_seconds) as stop:
                if not boot.open(stop):
                    raise MessageLeft("the lease could not be opened in time")
                self._carry(boot, message, api, stop)

    def _leave_environment(self, message: QueueMessage) -> NoReturn:
        _LOGGER.error("processes of another run were left here; this environment ends, and the message comes again")
        self._show(message, 0)
        self.exit_process()

    def _show(self, message: QueueMessage, seconds: int) -> None:
        with suppress(TidemillError):  # it comes back by itself, later
            self.cloud.queues.hide(QUEUES["lambda"], message.receipt, seconds)

    def _carry(self, boot: OpenBoot, message: QueueMessage, api: WorkerApi, stop: threading.Event) -> None:
        queue = _OneMessage()
        intake = Intake(
            queue, api, boot.identity, self.ground.random, kind="lambda", wait_seconds=0,
            foreign_seconds=self.ground.pace.foreign_seconds,
        )  # fmt: skip
        try:
            session = intake.accept(message, stop)
            if session is not None:
                boot.carry(session)
        finally:
            # Whatever happened: nothing that this invocation started lives on in a frozen environment.
            self._end_processes()
            boot.close(to_prove=intake.uncertain)
        if not queue.deleted:
            self._show(message, queue.shown_after)
            raise MessageLeft("the run was not accepted here")

    def _end_leftovers(self, api: WorkerApi, run_id: str | None) -> bool:
        """End what earlier invocations left on this machine; whether anything of another run lived, or still does."""
        ground = self.ground
        machine_id = read_identity(ground.state_dir, ground.random).machine_id
        records = boot_records(ground.state_dir)
        foreign = any(
            facts.pid != os.getpid() and any(run != run_id for run in record.groups)
            for record in records
            for facts in remains_of(record, machine_id).processes
        )
        if not self._end_processes():
            return True
        for record in records:
            self._prove(api, record.boot_id)
        _reap()
        return foreign

    def _end_processes(self) -> bool:
        """Kill whatever the boots of this environment have started; whether it went."""
        ground = self.ground
        try:
            end_leftovers(ground.state_dir, ground.clock, ground.random, spare=os.getpid())
        except TidemillError as error:
            _LOGGER.error("%s", error.detail)  # noqa: TRY400 - the reason is enough
            return False
        return True

    def _prove(self, api: WorkerApi, boot_id: str) -> None:
        """Tell the server once; a server that is away learns it from the bound of a Lambda's life."""
        try:
            api.boot_ended(boot_id)
        except TidemillError as error:
            _LOGGER.warning("boot %s: its end is not told: %s", boot_id, error.detail)
        settle(self.ground.state_dir, boot_id)


class _OneMessage:
    """The queue of one invocation: Lambda deletes the message when the handler returns, and leaves it when it raises."""

    def __init__(self) -> None:
        self.deleted = False
        self.shown_after = 0

    def receive(self, queue: str, *, wait_seconds: int, maximum: int = 1) -> list[QueueMessage]:
        """Nothing: Lambda has received the message."""
        del queue, wait_seconds, maximum
        return []

    def delete(self, queue: str, receipt: str) -> None:
        """Lambda will."""
        del queue, receipt
        self.deleted = True

    def hide(self, queue: str, receipt: str, seconds: int) -> None:
        """Note when to show it again; while the handler runs it is invisible for longer than a Lambda lives."""
        del queue, receipt
        self.shown_after = seconds


@contextmanager
def _time_limits(
    seconds_left: Callable[[], float], boot: OpenBoot, last_call_seconds: float
) -> Iterator[threading.Event]:
    """An event that is set when it is too late to start anything; soon after, nothing waits for an answer any more."""
    stop = threading.Event()

    def too_late() -> None:
        stop.set()
        boot.start_nothing()

    timers = [
        threading.Timer(max(0.0, seconds_left() - LAMBDA_MARGIN_SECONDS), too_late),
        threading.Timer(max(0.0, seconds_left() - last_call_seconds), boot.end_waits),
    ]
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        yield stop
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()


def _reap() -> None:
    """Collect children that ended while nobody waited for them; at the start of an invocation nobody waits for any."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
