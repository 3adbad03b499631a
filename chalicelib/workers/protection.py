"""Keeps ECS from scaling a worker in while it has runs (BR-164), by the task protection endpoint of the ECS agent.

Protection ends by itself after an hour, so that a worker that hangs cannot stay for ever, and is renewed well before. An
endpoint that fails is asked again and stops nothing: without protection a scale-in is an ordinary stop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import httpx

from ..kernel.clock import Clock
from ..kernel.limits import (
    PLATFORM_CALL_SECONDS,
    PROTECTION_MINUTES,
    PROTECTION_RENEW_SECONDS,
    PROTECTION_RETRY_SECONDS,
)

_LOGGER = logging.getLogger("tidemill.worker")
AGENT = "ECS_AGENT_URI"
_PATH = "/task-protection/v1/state"


class Protection(Protocol):
    """Something that a worker holds while it has runs."""

    def held(self) -> AbstractContextManager[None]:
        """Held within the block; several may hold it."""

    def close(self) -> None:
        """Nobody holds it any more."""


class _None:
    def held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        return


NO_PROTECTION: Protection = _None()


def protection_here(environment: Mapping[str, str], clock: Clock) -> Protection:
    """The protection of this ECS task; nothing outside of one."""
    address = environment.get(AGENT)
    return TaskProtection(address, clock) if address else NO_PROTECTION


class TaskProtection:
    """Protects the task while at least one run holds it. A thread of its own talks to the agent, so nobody waits."""

    def __init__(
        self,
        address: str,
        clock: Clock,
        *,
        renew_seconds: float = PROTECTION_RENEW_SECONDS,
        retry_seconds: float = PROTECTION_RETRY_SECONDS,
    ) -> None:
        self._url = address.rstrip("/") + _PATH
        self._clock = clock
        self._renew_seconds = renew_seconds
        self._retry_seconds = retry_seconds
        self._changed = threading.Condition()
        self._holders = 0
        self._closing = False
        self._protected = self._failed = False
        self._next_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="task-protection", daemon=True)
        self._thread.start()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Held within the block."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def close(self) -> None:
        """Give the protection back and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _count(self, change: int) -> None:
        with self._changed:
            self._holders += change
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work, self._wait_seconds())
                wanted, closing = self._holders > 0 and not self._closing, self._closing
            if wanted or self._protected:
                self._apply(wanted)
            else:
                self._failed, self._next_at = False, None
            if closing:
                return

    def _has_work(self) -> bool:
        changed = (self._holders > 0) != self._protected
        return self._closing or self._is_due() or (changed and not self._failed)

    def _is_due(self) -> bool:
        return self._next_at is not None and self._clock.elapsed_seconds() >= self._next_at

    def _wait_seconds(self) -> float | None:
        return None if self._next_at is None else max(0.0, self._next_at - self._clock.elapsed_seconds())

    def _apply(self, wanted: bool) -> None:
        self._failed = not self._asked(wanted)
        now = self._clock.elapsed_seconds()
        if self._failed:
            self._next_at = now + self._retry_seconds
            return
        self._protected = wanted
        self._next_at = now + self._renew_seconds if wanted else None

    def _asked(self, wanted: bool) -> bool:
        body = {"ProtectionEnabled": wanted} | ({"ExpiresInMinutes": PROTECTION_MINUTES} if wanted else {})
        try:
            answer = httpx.put(
                self._url, json=body, timeout=PLATFORM_CALL_SECONDS, follow_redirects=False, trust_env=False
            )
            told = answer.json()
            if answer.is_success and told["protection"]["ProtectionEnabled"] is wanted:
                return True
            problem = str(told.get("failure") or told.get("error") or answer.status_code)
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
            problem = f"{type(error).__name__}: {error}"
        _LOGGER.warning("the protection from scale-in is not %s: %.300s", "set" if wanted else "given back", problem)
        return False
