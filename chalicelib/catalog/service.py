"""Publishing and reading snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ..cloud.ports import ObjectStore
from ..database import Database, Transaction
from ..kernel.clock import instant_text
from ..kernel.errors import InvalidRequest, NotFound
from ..kernel.limits import DOCUMENTS_PER_SNAPSHOT
from ..kernel.paging import Page, check_limit, cursor_instant, decode_cursor, encode_cursor
from ..leases.lowering import HintLowering
from ..settings import Settings
from . import store
from .documents import object_key
from .model import (
    DocumentView,
    JobSummary,
    JobView,
    NodeView,
    Place,
    PublishRequest,
    PublishResult,
    SnapshotView,
    Upload,
)
from .ports import TriggerKeeper
from .publishing import Publisher, no_target

Item = TypeVar("Item")


class CatalogService:
    """Snapshots of one installation. ``triggers`` keeps their schedules and sensors."""

    def __init__(
        self,
        database: Database,
        lowering: HintLowering,
        objects: ObjectStore,
        triggers: TriggerKeeper,
        settings: Settings,
    ) -> None:
        self._database = database
        self._objects = objects
        self._publisher = Publisher(database, lowering, objects, triggers, settings)

    def uploads(self, location: str, target: str, sha256s: Sequence[str]) -> list[Upload]:
        """Where to PUT each document; no address for one that an earlier snapshot brought.

        A document that was uploaded but never published gets an address again: its content was not checked yet.
        """
        if len(sha256s) > DOCUMENTS_PER_SNAPSHOT + 1:
            raise InvalidRequest.of_field("sha256s", f"ask for at most {DOCUMENTS_PER_SNAPSHOT + 1} at once")
        with self._database.transaction() as tx:
            _require_target(tx, Place(location=location, target=target))
            known = store.known_documents(tx, set(sha256s))
        return [
            Upload(sha256=sha256, url=None if sha256 in known else self._objects.upload_url(object_key(sha256)))
            for sha256 in sha256s
        ]

    def publish(self, location: str, target: str, request: PublishRequest, principal_name: str) -> PublishResult:
        """Make a snapshot the current one of the target, in one transaction.

        Repeating it with the same id gives the same answer. Raises ``NotFound``, ``LocationDisabled``, ``IdReused``,
        ``SnapshotNotCurrent``, ``UnknownDocument``, ``InvalidRequest``, ``InvalidSchedule`` or ``NeverFits``; after
        any of them the store is as it was.
        """
        return self._publisher.publish(Place(location=location, target=target), request, principal_name)

    def current(self, location: str, target: str) -> SnapshotView:
        """The current snapshot. Raises ``NotFound`` for no such target, and before the first publication."""
        place = Place(location=location, target=target)
        with self._database.transaction() as tx:
            found = store.current_snapshot(tx, place)
            if found is None:
                _require_target(tx, place)
                raise NotFound(f"nothing is published to {location}/{target} yet; run `tidemill publish`")
            return found

    def snapshots(
        self, location: str, target: str, limit: int | None = None, cursor: str | None = None
    ) -> Page[SnapshotView]:
        """Snapshots that were published to the target, newest first."""
        place, size = Place(location=location, target=target), check_limit(limit)
        filters = {"list": "snapshots", "location": location, "target": target}
        key = decode_cursor(filters, cursor, 2) if cursor else None
        before = (cursor_instant(key[0]), key[1]) if key else None
        with self._database.transaction() as tx:
            _require_target(tx, place)
            found = store.snapshots_page(tx, place, before, size + 1)
        return _page(found, size, filters, lambda item: [instant_text(item.created_at), item.snapshot_id])

    def snapshot(self, snapshot_id: str) -> SnapshotView:
        """A snapshot by its id, with the place to which it was published first."""
        with self._database.transaction() as tx:
            return _required_snapshot(tx, snapshot_id)

    def places(self, snapshot_id: str) -> tuple[Place, ...]:
        """Every target that the snapshot was published to; whoever may read one of them may read the snapshot."""
        with self._database.transaction() as tx:
            found = store.places(tx, snapshot_id)
        if not found:
            raise _no_snapshot(snapshot_id)
        return found

    def document(self, snapshot_id: str, key: str) -> DocumentView:
        """A document: its text, or a link of 15 minutes to one in the object store."""
        with self._database.transaction() as tx:
            row = store.document(tx, snapshot_id, key)
            if row is None:
                _required_snapshot(tx, snapshot_id)
                raise NotFound(f"snapshot {snapshot_id[:12]} has no document {key!r}")
        text = row.pop("body")
        url = self._objects.download_url(object_key(row["sha256"])) if text is None else None
        return DocumentView(**row, text=text, url=url)

    def nodes(self, snapshot_id: str, limit: int | None = None, cursor: str | None = None) -> Page[NodeView]:
        """Nodes of a snapshot, by name."""
        size = check_limit(limit)
        filters = {"list": "nodes", "snapshot": snapshot_id}
        after = decode_cursor(filters, cursor, 1)[0] if cursor else None
        with self._database.transaction() as tx:
            _required_snapshot(tx, snapshot_id)
            found = store.nodes_page(tx, snapshot_id, after, size + 1)
        return _page(found, size, filters, lambda item: [item.node])

    def jobs(self, location: str, target: str) -> list[JobSummary]:
        """Jobs of a target's current snapshot, by name."""
        place = Place(location=location, target=target)
        with self._database.transaction() as tx:
            _require_target(tx, place)
            return store.jobs(tx, place)

    def job(self, location: str, target: str, job: str) -> JobView:
        """A job with its definition."""
        place = Place(location=location, target=target)
        with self._database.transaction() as tx:
            found = store.job(tx, place, job)
            if found is None:
                _require_target(tx, place)
                raise NotFound(f"{location}/{target} has no job {job!r}; list them with `tidemill jobs list`")
            return found


def _page(
    found: Sequence[Item], size: int, filters: Mapping[str, object], key_of: Callable[[Item], list[str]]
) -> Page[Item]:
    more = len(found) > size
    return Page(found[:size], encode_cursor(filters, key_of(found[size - 1])) if more else None)


def _require_target(tx: Transaction, place: Place) -> None:
    if store.target(tx, place) is None:
        raise no_target(place)


def _required_snapshot(tx: Transaction, snapshot_id: str) -> SnapshotView:
    found = store.snapshot(tx, snapshot_id)
    if found is None:
        raise _no_snapshot(snapshot_id)
    return found


def _no_snapshot(snapshot_id: str) -> NotFound:
    return NotFound(f"there is no snapshot {snapshot_id!r}")
