"""Messages of the run queue: from a received message to an accepted claim, or to nothing (scheduler.md 7.4)."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from ..cloud.ports import QueueMessage
from ..kernel.errors import TidemillError
from ..kernel.ids import RandomBits
from ..kernel.limits import ACCEPT_VISIBILITY_SECONDS, CLAIMS_REMEMBERED, WORKER_RETRY_MAX_SECONDS
from ..runs.model import Accepted, AcceptRequest
from ..settings import WorkerKind
from .server import WorkerApi, verdict_of
from .session import Backoff, ClaimSession

_LOGGER = logging.getLogger("tidemill.worker")
QUEUES: Mapping[WorkerKind, str] = {"container": "run-container", "lambda": "run-lambda"}


class RunQueue(Protocol):
    """What a worker does with the run queue; ``cloud.ports.QueueService`` has it."""

    def receive(self, queue: str, *, wait_seconds: int, maximum: int = 1) -> Sequence[QueueMessage]:
        """Up to ``maximum`` messages."""

    def delete(self, queue: str, receipt: str) -> None:
        """Acknowledge a message."""

    def hide(self, queue: str, receipt: str, seconds: int) -> None:
        """Show a message again after ``seconds``."""


@dataclass(frozen=True, slots=True)
class Boot:
    """Who accepts."""

    boot_id: str
    partition: int
    started_ref: str | None = None


class Intake:
    """Takes messages of one run queue for one boot; safe between threads. ``stop`` ends waits for a server that is away.

    ``uncertain`` says that an accept may have been taken without an answer: then the end of the boot must be proved.
    """

    def __init__(
        self,
        queue: RunQueue,
        api: WorkerApi,
        boot: Boot,
        random: RandomBits,
        *,
        kind: WorkerKind = "container",
        wait_seconds: int,
        foreign_seconds: int,
        retry_max_seconds: float = WORKER_RETRY_MAX_SECONDS,
    ) -> None:
        self._queue = queue
        self._name = QUEUES[kind]
        self._kind = kind
        self._api = api
        self._boot = boot
        self._random = random
        self._wait_seconds = wait_seconds
        self._foreign_seconds = foreign_seconds
        self._retry_max_seconds = retry_max_seconds
        self._lock = threading.Lock()
        self._known_claims: deque[str] = deque(maxlen=CLAIMS_REMEMBERED)
        self._backoff = Backoff(random)
        self.uncertain = False

    def receive(self, stop: threading.Event) -> QueueMessage | None:
        """The next message, if one comes within the wait; a queue that fails is asked again later."""
        try:
            messages = self._queue.receive(self._name, wait_seconds=self._wait_seconds, maximum=1)
        except Exception as error:  # noqa: BLE001 - a queue that fails is asked again
            _LOGGER.warning("the queue does not answer: %s", error)
            stop.wait(self._backoff.next_seconds())
            return None
        self._backoff = Backoff(self._random)
        return messages[0] if messages else None

    def give_back(self, message: QueueMessage) -> None:
        """Another worker may have it at once."""
        self._show(message, 0)

    def accept(self, message: QueueMessage, stop: threading.Event) -> ClaimSession | None:
        """Accept the claim and delete the message, or drop or leave the message as the refusal says."""
        named = named_run(message)
        if named is None:
            _LOGGER.error("a message that cannot be read stays in the queue: %.200s", message.body)
            return None
        run_id, claim_id = named
        if not self._first_sight(claim_id):
            self._delete(message)  # delivered twice; the run is here already (S33)
            return None
        request = AcceptRequest(
            claim_id=claim_id,
            boot_id=self._boot.boot_id,
            boot_partition=self._boot.partition,
            worker_kind=self._kind,
            started_ref=self._boot.started_ref,
        )
        accepted = self._accepted(message, run_id, request, stop)
        if accepted is None:
            return None
        self._delete(message)
        return ClaimSession(
            self._api,
            self._random,
            run_id,
            request,
            accepted.worker_token,
            retry_max_seconds=self._retry_max_seconds,
        )

    def _accepted(
        self, message: QueueMessage, run_id: str, request: AcceptRequest, stop: threading.Event
    ) -> Accepted | None:
        backoff = Backoff(self._random, self._retry_max_seconds)
        while True:
            try:
                return self._api.accept(run_id, request)
            except TidemillError as error:
                verdict = verdict_of(error)
                if verdict in {"claim_lost", "cancelled"}:
                    self._delete(message)
                    return None
                if verdict != "transient":
                    _LOGGER.warning("run %s is left to another worker: %s", run_id, error.detail)
                    self._show(message, self._foreign_seconds)
                elif self._may_wait(message, stop, backoff):
                    _LOGGER.warning("run %s cannot be accepted yet: %s", run_id, error.detail)
                    continue
                self._forget(request.claim_id)
                return None

    def _may_wait(self, message: QueueMessage, stop: threading.Event, backoff: Backoff) -> bool:
        """Keep the message while the server is away; ``False`` when the worker stops first."""
        self._show(message, ACCEPT_VISIBILITY_SECONDS)
        if stop.wait(backoff.next_seconds()):
            self.uncertain = True
            self._show(message, 0)
            return False
        return True

    def _first_sight(self, claim_id: str) -> bool:
        with self._lock:
            if claim_id in self._known_claims:
                return False
            self._known_claims.append(claim_id)
        return True

    def _forget(self, claim_id: str) -> None:
        with self._lock, suppress(ValueError):  # it may be so old that it was forgotten already
            self._known_claims.remove(claim_id)

    def _delete(self, message: QueueMessage) -> None:
        try:
            self._queue.delete(self._name, message.receipt)
        except Exception as error:  # noqa: BLE001 - a message that comes again finds the claim taken
            _LOGGER.warning("a message is not deleted: %s", error)

    def _show(self, message: QueueMessage, seconds: int) -> None:
        try:
            self._queue.hide(self._name, message.receipt, seconds)
        except Exception as error:  # noqa: BLE001 - it comes back by itself
            _LOGGER.warning("a message keeps its visibility: %s", error)


def named_run(message: QueueMessage) -> tuple[str, str] | None:
    """Run id and claim id of a message of version 1."""
    try:
        body = json.loads(message.body)
        return (str(body["run_id"]), str(body["claim_id"])) if body["v"] == 1 else None
    except (ValueError, KeyError, TypeError):
        return None
