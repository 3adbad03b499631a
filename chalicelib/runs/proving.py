"""What the container service says of tasks, as proofs that the processes in them have ended (scheduler.md 7.3)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..cloud.ports import TaskService
from ..database import Transaction, load_queries
from ..kernel.errors import Unavailable
from ..kernel.ids import IdSource
from ..kernel.limits import TASKS_PER_DESCRIBE
from .ending import end_gone

LOG = logging.getLogger("tidemill.proofs")
PROVING = load_queries(__package__, "proving.sql")
STOPPED = "STOPPED"

_TASK = re.compile(r"arn:[^:]+:ecs:[^:]*:[^:]*:task/\S+")


def is_task(started_ref: str) -> bool:
    """Whether a claim's ``started_ref`` names a task of the container service."""
    return _TASK.fullmatch(started_ref) is not None


def stopped_task(event: Mapping[str, Any]) -> str | None:
    """The task that an event of the container service proves ended; ``None`` for every other event.

    Only the task's own last status counts: one that is wanted stopped may still run, and one of its containers may have
    ended before the others.
    """
    detail = event.get("detail")
    if event.get("detail-type") != "ECS Task State Change" or not isinstance(detail, Mapping):
        return None
    task = detail.get("taskArn")
    return task if detail.get("lastStatus") == STOPPED and isinstance(task, str) and is_task(task) else None


def stopped_among(tasks: TaskService, refs: Sequence[str]) -> list[str]:
    """Those of the tasks that the container service says have stopped.

    One that it does not know, an answer that is empty or about another task, and no answer at all prove nothing.
    """
    asked = [ref for ref in refs if is_task(ref)]
    try:
        found = tasks.last_statuses(asked) if asked else {}
    except Unavailable as error:
        LOG.warning("the container service gives no proof: %s", error.detail)
        return []
    return [ref for ref in asked if found.get(ref) == STOPPED]


def marked_tasks(tx: Transaction, partitions: Sequence[int]) -> list[str]:
    """The tasks worth asking about: those of runs that were marked lost, by the partitions of their boots."""
    rows = tx.rows(PROVING["marked_tasks"], partitions=list(partitions), batch=TASKS_PER_DESCRIBE)
    return [row["started_ref"] for row in rows]


def end_tasks(tx: Transaction, ids: IdSource, tasks: Sequence[str]) -> list[dict[str, Any]]:
    """Settle the unfinished runs of tasks that were proved to have stopped; the rows of those that ended."""
    return end_gone(tx, ids, tx.rows(PROVING["runs_of_tasks"], tasks=list(tasks)))
