"""Whether this is alive, whether it can work, and what it offers. The only operations that need no token."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from ... import __version__
from ...cron.zones import tzdata_version
from ...database.store import check_open_store
from ...kernel.errors import TidemillError, Unavailable
from ...kernel.records import Record
from ...scheduler.scanning import unscheduled
from ..log import described, logger
from .routing import Call, Nothing, Resource

resource = Resource("health")


class Health(Record):
    """The release of Tidemill and of the time zone data."""

    status: Literal["ok"] = "ok"
    release: str
    tzdata: str


class Readiness(Record):
    """Everything that a request needs has answered.

    ``scheduler`` is ``late`` when work has been due for three minutes and no pass has come to its end since, in the shards
    named. It is read from the store, so that it tells when nothing runs: what a monitor outside has to ask.
    """

    status: Literal["ready"] = "ready"
    scheduler: Literal["ok", "late"]
    late_shards: list[int]


@resource.operation("GET", "/health")
def health(call: Call[Nothing, Nothing, None]) -> Health:
    """Say which release runs here. Reads no store and wakes nothing."""
    del call
    return Health(release=__version__, tzdata=tzdata_version())


@resource.operation("GET", "/ready", errors=[Unavailable])
def ready(call: Call[Nothing, Nothing, None]) -> Readiness:
    """Check that the store answers and has this release's schema, that the queues are there, and that somebody schedules.

    A scheduler that is late does not make this API unready: look at ``scheduler`` in the answer.
    """
    try:
        check_open_store(call.services.database)
        for queue in ("tick", "run-lambda", "run-container"):
            call.services.aws.queues.check(queue)
        late = unscheduled(call.services.database)
    except TidemillError as error:
        logger.warning("not ready", extra={"request_id": call.request_id, **described(error)})
        raise Unavailable from error
    return Readiness(scheduler="late" if late else "ok", late_shards=late)


@resource.operation("GET", "/openapi.json")
def openapi(call: Call[Nothing, Nothing, None]) -> dict[str, JsonValue]:
    """Give this API's OpenAPI 3.1 document."""
    from .openapi import document

    del call
    return document()
