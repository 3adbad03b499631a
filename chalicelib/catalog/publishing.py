"""The one transaction that publishes (scheduler.md 4.4).

Follow ``publish``: refuse or repeat early (a read), check documents (object store, no transaction), then write all
under the lock of the target. Everything that could refuse is checked before the first row is written, and whatever
refuses later rolls all of it back (S1).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..cloud.ports import ObjectStore
from ..database import Database, Transaction
from ..kernel.errors import IdReused, InvalidRequest, LocationDisabled, NotFound, SnapshotNotCurrent, UnknownDocument
from ..leases.lowering import HintLowering, all_shards
from ..projects.bundle import SnapshotIndex
from ..settings import Settings
from . import store
from .documents import CheckedDocuments, check_documents, checked_index
from .model import Place, PublishRequest, PublishResult, TriggerChanges
from .plan import check_index, declared_triggers, new_pools, shard_of
from .ports import TriggerKeeper


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the store said before the transaction."""

    now: datetime
    pools: dict[str, int]
    known: dict[str, bool]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A publication of which everything is checked that needs no lock."""

    place: Place
    request: PublishRequest
    index: SnapshotIndex
    published_by: str
    documents: CheckedDocuments
    new_pools: list[str]
    warnings: list[str]


class Publisher:
    """Publishes snapshots of one installation."""

    def __init__(
        self,
        database: Database,
        lowering: HintLowering,
        objects: ObjectStore,
        triggers: TriggerKeeper,
        settings: Settings,
    ) -> None:
        self._database = database
        self._lowering = lowering
        self._objects = objects
        self._triggers = triggers
        self._settings = settings

    def publish(self, place: Place, request: PublishRequest, published_by: str) -> PublishResult:
        """Publish, or give the answer that this publication id was given before."""
        with self._database.transaction() as tx:
            earlier = _earlier_answer(tx, place, request)
            if earlier is not None:
                return earlier
            _check_target(tx, place)
        index = checked_index(request, self._objects)
        with self._database.transaction() as tx:
            facts = self._facts(tx, index)
        warnings = check_index(index, facts.pools, now=facts.now)
        documents = check_documents(index, request.documents, facts.known, self._objects)
        prepared = _Prepared(place, request, index, published_by, documents, new_pools(index, facts.pools), warnings)
        return self._lowering.lowered(all_shards, lambda tx: self._commit(tx, prepared))

    def _facts(self, tx: Transaction, index: SnapshotIndex) -> _Facts:
        known = store.known_documents(tx, {document.sha256 for document in index.documents})
        return _Facts(tx.now, {**store.pools(tx), **self._settings.pool_limits()}, known)

    def _commit(self, tx: Transaction, prepared: _Prepared) -> PublishResult:
        place, request = prepared.place, prepared.request
        row = _check_target(tx, place, lock=True)
        # again under the lock: the same request may have committed on another connection meanwhile
        earlier = _earlier_answer(tx, place, request)
        if earlier is not None:
            return earlier
        _check_case_rule(place, prepared.index, row["case_rule"])
        current = store.lock_current(tx, place)
        _check_expected(request, current)
        _store_snapshot(tx, prepared)
        store.add_pools(tx, prepared.new_pools)
        changed = current != request.snapshot_id
        changes = self._replace(tx, prepared) if changed else _kept(prepared.index)
        if request.connection_fingerprint is not None:
            store.put_fingerprint(tx, place, request.connection_fingerprint)
        result = PublishResult(
            publication_id=request.publication_id,
            snapshot_id=request.snapshot_id,
            location=place.location,
            target=place.target,
            jobs=tuple(sorted(prepared.index.jobs)),
            triggers=changes,
            changed=changed,
            warnings=(*prepared.warnings, *_sharing_warnings(tx, place, request.snapshot_id)),
        )
        store.insert_publication(tx, place, request, result)
        return result

    def _replace(self, tx: Transaction, prepared: _Prepared) -> TriggerChanges:
        place, shards = prepared.place, len(all_shards(tx))
        jobs = {job: shard_of(place.location, place.target, job, shards) for job in prepared.index.jobs}
        store.make_current(tx, place, prepared.request.snapshot_id, jobs)
        declared = declared_triggers(prepared.index, place.location, place.target, shards)
        merged = self._triggers.merge(tx, place.location, place.target, declared)
        return TriggerChanges(added=merged.added, changed=merged.changed, kept=merged.kept, removed=merged.removed)


def _earlier_answer(tx: Transaction, place: Place, request: PublishRequest) -> PublishResult | None:
    row = store.publication(tx, request.publication_id)
    if row is None:
        return None
    if (row["location"], row["target"], row["snapshot_id"]) != (place.location, place.target, request.snapshot_id):
        raise IdReused.of_field(
            "publication_id",
            f"it was used for snapshot {row['snapshot_id'][:12]} to {row['location']}/{row['target']}; use a new id",
        )
    return PublishResult.model_validate(row["response"])


def _check_target(tx: Transaction, place: Place, *, lock: bool = False) -> dict[str, Any]:
    row = store.target(tx, place, lock=lock)
    if row is None:
        raise no_target(place)
    if row["disabled"]:
        raise LocationDisabled.of_field(
            "location", f"{place.location!r} takes no publications; enable it with `tidemill admin location enable`"
        )
    return row


def no_target(place: Place) -> NotFound:
    """The error for a target that is not set."""
    return NotFound.of_field(
        "target",
        f"there is no target {place.target!r} of location {place.location!r}; "
        f"set it with `tidemill admin target set {place.location} {place.target}`",
    )


def _check_case_rule(place: Place, index: SnapshotIndex, case_rule: str) -> None:
    """Refuse relations that are folded otherwise than those of the other targets of the warehouse."""
    if index.case_rule != case_rule and any(job.relations for job in index.jobs.values()):
        raise InvalidRequest.of_field(
            "index.case_rule",
            f"relations of the project are written {index.case_rule!r}, those of the target {case_rule!r}; set it with "
            f"`tidemill admin target set {place.location} {place.target} --case-rule {index.case_rule}` "
            "and its other options, which the command sets as a whole",
        )


def _check_expected(request: PublishRequest, current: str | None) -> None:
    if request.expect_current is not None and request.expect_current != current:
        raise SnapshotNotCurrent(
            f"expect_current: {request.expect_current} was expected, and {current or 'no snapshot'} is current; "
            "look at what is current, then publish with that id",
            facts={"current": current},
        )


def _store_snapshot(tx: Transaction, prepared: _Prepared) -> None:
    snapshot_id, index = prepared.request.snapshot_id, prepared.index
    if not store.insert_snapshot(tx, prepared.place, snapshot_id, index, prepared.published_by):
        return
    for row in store.insert_documents(tx, snapshot_id, index, prepared.documents.bodies):
        if row["in_objects"] and row["sha256"] not in prepared.documents.in_objects:
            # the row that had its body was removed between the check and this transaction
            raise UnknownDocument.of_field(f"documents.{row['key']}", "is no longer there; publish again")
    store.insert_content(tx, snapshot_id, index)


def _kept(index: SnapshotIndex) -> TriggerChanges:
    return TriggerChanges(kept=sum(len(job.triggers) for job in index.jobs.values()))


def _sharing_warnings(tx: Transaction, place: Place, snapshot_id: str) -> list[str]:
    return [_sharing_warning(row) for row in store.shared_relations(tx, place, snapshot_id)]


def _sharing_warning(row: dict[str, Any]) -> str:
    more = f" and {row['relations'] - 1} more" if row["relations"] > 1 else ""
    return (
        f"relation_shared: {row['example']}{more}: jobs of {row['location']}/{row['target']} write it over the same "
        f"connection as warehouse {row['warehouse']!r}, so write claims do not keep the two apart; "
        "give both targets one warehouse"
    )
