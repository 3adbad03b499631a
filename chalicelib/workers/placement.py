"""What the platform calls this start of the worker: the ARN of its ECS task, if it is one (scheduler.md 7.3, 9)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import httpx

from ..kernel.limits import METADATA_ATTEMPTS, METADATA_SECONDS, STARTED_REF_CHARACTERS

_LOGGER = logging.getLogger("tidemill.worker")
METADATA = "ECS_CONTAINER_METADATA_URI_V4"


def started_ref(environment: Mapping[str, str]) -> str | None:
    """The ARN of the task that this process runs in, from the task metadata endpoint; ``None`` outside a task.

    Without it the end of the task proves nothing about its runs, so an endpoint that does not answer is asked again a
    few times, and then said.
    """
    address = environment.get(METADATA)
    if address is None:
        return None
    problem = ""
    for _ in range(METADATA_ATTEMPTS):
        try:
            return _task_arn(address)
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            problem = f"{type(error).__name__}: {error}"
    _LOGGER.warning("the task metadata endpoint gives no task; when this task stops, that proves nothing (%s)", problem)
    return None


def _task_arn(address: str) -> str:
    answer = httpx.get(f"{address}/task", timeout=METADATA_SECONDS, follow_redirects=False, trust_env=False)
    answer.raise_for_status()
    arn = answer.json()["TaskARN"]
    if not isinstance(arn, str) or not 0 < len(arn) <= STARTED_REF_CHARACTERS:
        raise ValueError("TaskARN is no ARN")
    return arn
