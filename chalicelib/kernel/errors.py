"""Every error that Tidemill raises on purpose.

One class per stable code. The class docstring is the message's headline (the ``title`` of a problem
document); ``detail`` says what happened to which thing and what to do next. The HTTP status and the
exit code come from the two tables at the end, and a test walks all classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong field: its dotted name, a stable code, and what is wrong with it."""

    field: str
    code: str
    message: str


class TidemillError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "internal"

    def __init__(
        self, detail: str = "", *, fields: Sequence[FieldError] = (), facts: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(detail or self.title())
        self.detail = detail or self.title()
        self.fields = tuple(fields)
        self.facts = dict(facts or {})

    @classmethod
    def title(cls) -> str:
        """The first line of the class docstring."""
        return (inspect.getdoc(cls) or "").partition("\n")[0].rstrip(".")

    @classmethod
    def of_field(cls, field: str, message: str) -> Self:
        """An error about one field, named in the text and in ``fields``."""
        return cls(f"{field}: {message}", fields=[FieldError(field, cls.code, message)])


class Malformed(TidemillError):
    """The request cannot be read."""

    code = "malformed"


class NotFound(TidemillError):
    """There is no such thing here, or you may not see it."""

    code = "not_found"


class MethodNotAllowed(TidemillError):
    """This path does not offer that method."""

    code = "method_not_allowed"


class TooLarge(TidemillError):
    """The request body is too large."""

    code = "too_large"


class UnsupportedMedia(TidemillError):
    """The body must be application/json."""

    code = "unsupported_media"


class NotAuthenticated(TidemillError):
    """This needs a valid token."""

    code = "not_authenticated"


class TokenExpired(TidemillError):
    """The token has expired."""

    code = "token_expired"


class TokenRevoked(TidemillError):
    """The token was revoked."""

    code = "token_revoked"


class Forbidden(TidemillError):
    """The token does not allow this."""

    code = "forbidden"


class IdReused(TidemillError):
    """The id was used before for something else."""

    code = "id_reused"


class AlreadyFinished(TidemillError):
    """It has already finished."""

    code = "already_finished"


class NotTerminal(TidemillError):
    """The run has not ended yet."""

    code = "not_terminal"


class NothingToRerun(TidemillError):
    """Every node of the run was built; there is nothing left to rerun."""

    code = "nothing_to_rerun"


class StillBeating(TidemillError):
    """The run's worker still gives signs of life."""

    code = "still_beating"


class ClaimTaken(TidemillError):
    """Another worker has accepted this claim."""

    code = "claim_taken"


class ClaimEnded(TidemillError):
    """The claim has ended; nothing more is accepted under it."""

    code = "claim_ended"


class RunCancelled(TidemillError):
    """The run was cancelled."""

    code = "cancelled"


class ReportKeyReused(TidemillError):
    """The report key was used before with other content."""

    code = "report_key_reused"


class EventConflict(TidemillError):
    """The event id was seen before with other content."""

    code = "event_conflict"


class SnapshotNotCurrent(TidemillError):
    """Another snapshot is current than the one that was expected."""

    code = "snapshot_not_current"


class HasLiveClaims(TidemillError):
    """The target has live write claims."""

    code = "has_live_claims"


class LocationDisabled(TidemillError):
    """The location is disabled."""

    code = "location_disabled"


class PreconditionFailed(TidemillError):
    """It was changed since it was read."""

    code = "precondition_failed"


class PreconditionRequired(TidemillError):
    """A change of this needs to say from what it was made."""

    code = "precondition_required"


class FolderInUse(TidemillError):
    """Another Tidemill process uses this folder."""

    code = "folder_in_use"


class InvalidRequest(TidemillError):
    """A field of the request is wrong."""

    code = "invalid_request"


class InvalidDeclaration(TidemillError):
    """The project's declaration is wrong."""

    code = "invalid_declaration"


class InvalidSchedule(TidemillError):
    """The schedule is wrong."""

    code = "invalid_schedule"


class InvalidInputs(TidemillError):
    """The inputs do not fit the job."""

    code = "invalid_inputs"


class InvalidSelection(TidemillError):
    """A selector does not fit the project."""

    code = "invalid_selection"


class EmptySelection(TidemillError):
    """The selection resolves to no node."""

    code = "empty_selection"


class NeverFits(TidemillError):
    """The job needs more of a pool than the pool has."""

    code = "never_fits"


class UnknownDocument(TidemillError):
    """A document of the snapshot is missing or differs from its hash."""

    code = "unknown_document"


class IdInvalid(TidemillError):
    """The id is not well formed."""

    code = "id_invalid"


class ToolMissing(TidemillError):
    """The project's interpreter lacks what it needs."""

    code = "tool_missing"


class CompileFailed(TidemillError):
    """The project does not compile."""

    code = "compile_failed"


class Drift(TidemillError):
    """What is on disk differs from what is published."""

    code = "drift"


class UsageError(TidemillError):
    """The command's options do not fit together."""

    code = "usage"


class LocalStackFailed(TidemillError):
    """A part of the local stack could not start or has stopped."""

    code = "local_stack_failed"


class Throttled(TidemillError):
    """Too many requests."""

    code = "throttled"


class Unavailable(TidemillError):
    """A service that this needs does not answer; repeat later."""

    code = "unavailable"


class AnswerUnusable(TidemillError):
    """The server's answer cannot be used."""

    code = "answer_unusable"


class OutputFailed(TidemillError):
    """The output could not be written; nothing was changed."""

    code = "output_failed"


class OutcomeUnknown(TidemillError):
    """No answer came; what was asked may or may not have happened. Repeat with the same id."""

    code = "timeout"


class ResultNotDelivered(TidemillError):
    """The change is committed, but its result could not be written."""

    code = "result_not_delivered"


class RunNotSucceeded(TidemillError):
    """The run did not succeed."""

    code = "run_not_succeeded"


# HTTP status by code; a code that is absent never leaves the command line.
STATUS: Mapping[str, int] = {
    "malformed": 400,
    "not_found": 404,
    "method_not_allowed": 405,
    "too_large": 413,
    "unsupported_media": 415,
    "not_authenticated": 401,
    "token_expired": 401,
    "token_revoked": 401,
    "forbidden": 403,
    "id_reused": 409,
    "already_finished": 409,
    "not_terminal": 409,
    "nothing_to_rerun": 409,
    "still_beating": 409,
    "claim_taken": 409,
    "claim_ended": 409,
    "cancelled": 409,
    "report_key_reused": 409,
    "event_conflict": 409,
    "snapshot_not_current": 409,
    "has_live_claims": 409,
    "location_disabled": 409,
    "precondition_failed": 412,
    "precondition_required": 428,
    "invalid_request": 422,
    "invalid_schedule": 422,
    "invalid_inputs": 422,
    "invalid_selection": 422,
    "empty_selection": 422,
    "never_fits": 422,
    "unknown_document": 422,
    "id_invalid": 422,
    "throttled": 429,
    "internal": 500,
    "unavailable": 503,
    "timeout": 504,
}

# Exit code by HTTP status (scheduler.md 18) ...
EXIT_OF_STATUS: Mapping[int, int] = {
    400: 2, 404: 2, 405: 2, 413: 2, 415: 2, 422: 2, 428: 2,
    401: 4, 403: 4,
    409: 5, 412: 5,
    429: 1, 500: 1, 503: 1,
    504: 6,
}  # fmt: skip
# ... and by code, for what never has a status.
EXIT_OF_CODE: Mapping[str, int] = {
    "folder_in_use": 5,
    "invalid_declaration": 2,
    "usage": 2,
    "tool_missing": 2,
    "compile_failed": 2,
    "drift": 3,
    "local_stack_failed": 1,
    "answer_unusable": 1,
    "output_failed": 1,
    "run_not_succeeded": 1,
    "result_not_delivered": 7,
}
EXIT_INTERRUPTED = 130


def status_of(error: TidemillError) -> int:
    """The HTTP status of ``error``; 500 for one that never should reach a client."""
    return STATUS.get(error.code, 500)


def exit_code_of(error: TidemillError) -> int:
    """The exit code of a command that ends with ``error``."""
    if error.code in EXIT_OF_CODE:
        return EXIT_OF_CODE[error.code]
    return EXIT_OF_STATUS[status_of(error)]


def all_errors(base: type[TidemillError] = TidemillError) -> Iterator[type[TidemillError]]:
    """``base`` and every class below it."""
    yield base
    for child in base.__subclasses__():
        yield from all_errors(child)
