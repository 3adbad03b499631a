"""Problem documents (RFC 9457): what a client gets in place of an answer (scheduler.md 17.1)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from pydantic import Field, JsonValue

from ...kernel.errors import TidemillError, Unavailable, status_of
from ...kernel.limits import RETRY_AFTER_SECONDS
from ...kernel.records import Record
from ..log import described, logger

PROBLEM_TYPE = "application/problem+json"


class ProblemField(Record):
    """One wrong field: its dotted name, a stable code, and what is wrong with it."""

    field: str
    code: str
    message: str


class Problem(Record):
    """Every error. ``code`` is stable; ``facts`` holds what a program may want of it, such as the state of a run."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
    errors: tuple[ProblemField, ...] = ()
    facts: dict[str, JsonValue] = Field(default_factory=dict)


def problem_of(error: Exception, instance: str, request_id: str) -> Problem:
    """The document for ``error``; what nobody foresaw shows nothing of itself and is logged under the request id."""
    status = status_of(error) if isinstance(error, TidemillError) else HTTPStatus.INTERNAL_SERVER_ERROR
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.error("the request failed", extra={"request_id": request_id, "path": instance, **described(error)})
    shown = (
        _shown(error) if isinstance(error, TidemillError) and status != HTTPStatus.INTERNAL_SERVER_ERROR else _UNKNOWN
    )
    return Problem(
        type=f"urn:tidemill:problem:{shown.code}",
        title=shown.title(),
        status=status,
        detail=shown.detail,
        instance=instance,
        code=shown.code,
        request_id=request_id,
        errors=tuple(ProblemField(field=f.field, code=f.code, message=f.message) for f in shown.fields),
        facts=shown.facts,  # type: ignore[arg-type]  # validated by the model
    )


def problem_headers(problem: Problem) -> Mapping[str, str]:
    """The headers that a status asks for."""
    if problem.status == HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": "Bearer"}
    if problem.status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
        return {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return {}


_UNKNOWN = TidemillError("the server failed; the request id finds the reason in its log")


def _shown(error: TidemillError) -> TidemillError:
    # the driver's text names hosts and accounts, and /ready answers anybody
    return Unavailable() if isinstance(error, Unavailable) else error
