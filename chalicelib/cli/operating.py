"""Two ways to act on runs: over the API, or on the database for an operator who holds its address (scheduler.md 18)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from ..client.address import path_of
from ..kernel.errors import UsageError
from .administration import Document, store_services, validated
from .command import Session

if TYPE_CHECKING:
    from ..bootstrap import Services
    from ..client.api import ApiClient

Place = tuple[str, str]
DIRECTLY = "admin-cli"
"""Who asked, where no token says it."""


class Operating(Protocol):
    """What ``run`` and ``runs`` ask for; every answer is the document that the API gives."""

    def job(self, place: Place, job: str) -> Document:
        """A current job with its definition."""

    def request(self, place: Place, job: str, body: Document) -> Document:
        """Ask for a run."""

    def run(self, run_id: str) -> Document:
        """One run."""

    def runs(self, query: Document) -> Document:
        """One page of runs."""

    def cancel(self, run_id: str, body: Document) -> Document:
        """Cancel a run."""

    def resolve(self, run_id: str, body: Document) -> Document:
        """Say how a run ended."""


@contextmanager
def operating(session: Session, store: str | None) -> Iterator[Operating]:
    """On the database at ``store``, else over the API."""
    if not store:
        yield ServerOperating(session.api)
        return
    if session.options.server:
        raise UsageError("--store and --server exclude each other; give one")
    with store_services(session, store) as services:
        yield StoreOperating(services)


class ServerOperating:
    """Over the routes of runs."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def job(self, place: Place, job: str) -> Document:
        return self._get(path_of("locations", place[0], "targets", place[1], "jobs", job))

    def request(self, place: Place, job: str, body: Document) -> Document:
        return self._post(path_of("locations", place[0], "targets", place[1], "jobs", job, "runs"), body)

    def run(self, run_id: str) -> Document:
        return self._get(path_of("runs", run_id))

    def runs(self, query: Document) -> Document:
        return self._get("/runs", query)

    def cancel(self, run_id: str, body: Document) -> Document:
        return self._post(path_of("runs", run_id, "cancel"), body)

    def resolve(self, run_id: str, body: Document) -> Document:
        return self._post(path_of("runs", run_id, "resolve"), body)

    def _get(self, path: str, query: Document | None = None) -> Document:
        answer: Document = self._api.call("GET", path, query=query).body
        return answer

    def _post(self, path: str, body: Document) -> Document:
        """Every body here carries an id of ours, so that a repeat is safe."""
        answer: Document = self._api.call("POST", path, body=body, repeatable=True).body
        return answer


class StoreOperating:
    """With the same services that the API calls, on the database."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def job(self, place: Place, job: str) -> Document:
        return _dumped(self._services.catalog.job(*place, job))

    def request(self, place: Place, job: str, body: Document) -> Document:
        from ..runs.model import RunRequest

        run, reused = self._services.runs.request(*place, job, validated(RunRequest, body), DIRECTLY)
        return {"run": _dumped(run), "reused": reused}

    def run(self, run_id: str) -> Document:
        return _dumped(self._services.runs.run(run_id))

    def runs(self, query: Document) -> Document:
        from ..runs.reading import RunFilter

        limit, cursor = query.pop("limit"), query.pop("cursor")
        page = self._services.runs.runs(validated(RunFilter, query), limit, cursor)
        return {"items": [_dumped(run) for run in page.items], "next_cursor": page.next_cursor}

    def cancel(self, run_id: str, body: Document) -> Document:
        from ..runs.model import CancelRequest

        return _dumped(self._services.runs.cancel(run_id, validated(CancelRequest, body), DIRECTLY))

    def resolve(self, run_id: str, body: Document) -> Document:
        from ..runs.model import ResolveRequest

        return _dumped(self._services.runs.resolve(run_id, validated(ResolveRequest, body), DIRECTLY))


def _dumped(record: Any) -> Document:
    document: Document = record.model_dump(mode="json")
    return document
