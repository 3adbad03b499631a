"""Where the driver's errors become ours: the constraint that prevented something names the rule it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import psycopg_pool

from ..kernel.errors import EventConflict, FieldError, IdReused, InvalidRequest, NotFound, TidemillError, Unavailable

_REFUSED_BY: dict[str, tuple[type[TidemillError], str, str]] = {
    "runs_pkey": (IdReused, "run_id", "the run id was used before"),
    "publications_pkey": (IdReused, "publication_id", "the publication id was used before"),
    "run_events_pkey": (EventConflict, "event_id", "the event id was seen before with other content"),
    "targets_location_fkey": (NotFound, "location", "no such location; add it with `tidemill admin location add`"),
    "access_tokens_location_fkey": (
        NotFound,
        "location",
        "no such location; add it with `tidemill admin location add`",
    ),
    "jobs_target_fkey": (NotFound, "target", "no such target; set it with `tidemill admin target set`"),
}


def may_repeat(error: BaseException) -> bool:
    """Whether repeating the whole operation may cure it: a deadlock, a lost connection, a lost COMMIT reply.

    Not a statement that ran into its time limit, which would only do so again, and not a pool that gave no connection
    in its own time.
    """
    final = (psycopg.errors.QueryCanceled, psycopg_pool.PoolTimeout)
    return isinstance(error, psycopg.OperationalError) and not isinstance(error, final)


@contextmanager
def translated() -> Iterator[None]:
    """Raise our error in place of the driver's; what has no row in the table above stays as it is."""
    try:
        yield
    except psycopg.errors.IntegrityError as error:
        raise _domain_error(error) from error
    except psycopg.DataError as error:
        raise InvalidRequest(f"a value cannot be stored: {error.diag.message_primary or error}") from error
    except psycopg.OperationalError as error:  # a pool's time-out is one, too
        raise Unavailable(f"the database does not answer; repeat in a few seconds ({_first_line(error)})") from error


def _domain_error(error: psycopg.errors.IntegrityError) -> TidemillError:
    constraint = error.diag.constraint_name or ""
    if constraint not in _REFUSED_BY:
        return TidemillError(f"constraint {constraint or 'unknown'} refused a row: {_first_line(error)}")
    kind, field, message = _REFUSED_BY[constraint]
    return kind(f"{field}: {message}", fields=[FieldError(field, kind.code, message)])


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
