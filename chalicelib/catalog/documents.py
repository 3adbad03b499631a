"""Index and documents of a publication: where each one's content is, and that it is what its hash says.

All of this happens before the transaction, since it may read and write the object store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from ..cloud.ports import ObjectStore
from ..kernel import limits
from ..kernel.canonical import sha256_bytes
from ..kernel.errors import FieldError, InvalidRequest, TooLarge, UnknownDocument
from ..projects.bundle import DocumentRecord, SnapshotIndex
from .model import PublishRequest


@dataclass(frozen=True, slots=True)
class CheckedDocuments:
    """``bodies`` are the texts for rows, by hash; ``in_objects`` are hashes whose content the object store has."""

    bodies: Mapping[str, str]
    in_objects: frozenset[str]


def object_key(sha256: str) -> str:
    """Where a document or an index lies in the object store."""
    return f"snapshots/{sha256}"


def checked_index(request: PublishRequest, objects: ObjectStore) -> SnapshotIndex:
    """The index of the publication, whose digest is the snapshot id."""
    index = request.index if request.index is not None else _uploaded_index(request.snapshot_id, objects)
    if index.snapshot_id() != request.snapshot_id:
        raise UnknownDocument.of_field(
            "snapshot_id", f"the digest of the index is {index.snapshot_id()}; compile again"
        )
    return index


def check_documents(
    index: SnapshotIndex, inline: Mapping[str, str], known: Mapping[str, bool], objects: ObjectStore
) -> CheckedDocuments:
    """Check every document against its hash and size; put large inline ones into the object store.

    ``known`` are hashes that an earlier snapshot brought and that were checked then, with whether their content is
    in the object store. Raises ``UnknownDocument`` naming the document's key.
    """
    records = {document.sha256: document for document in index.documents}
    for sha256, text in inline.items():
        if sha256 not in records:
            raise UnknownDocument.of_field(f"documents.{sha256}", "the index does not list it; compile again")
        _check_content(records[sha256], text.encode())
    bodies = {sha256: text for sha256, text in inline.items() if _fits_row(text)}
    for sha256 in inline.keys() - bodies.keys() - known.keys():
        objects.put(object_key(sha256), inline[sha256].encode())
    in_objects = {sha256 for sha256, stored in known.items() if stored} | (inline.keys() - bodies.keys() - known.keys())
    uploaded = [record for sha256, record in records.items() if sha256 not in inline and sha256 not in known]
    return CheckedDocuments(bodies, frozenset({*in_objects, *_check_uploaded(uploaded, objects)}))


def _check_uploaded(records: list[DocumentRecord], objects: ObjectStore) -> Iterator[str]:
    for record in records:
        content = objects.get(object_key(record.sha256))
        if content is None:
            raise UnknownDocument.of_field(
                f"documents.{record.key}", "was neither sent nor uploaded; publish again from the bundle"
            )
        _check_content(record, content)
        yield record.sha256


def _check_content(record: DocumentRecord, content: bytes) -> None:
    found = sha256_bytes(content)
    if found != record.sha256:
        raise UnknownDocument.of_field(
            f"documents.{record.key}", f"its content has the hash {found}, not {record.sha256}; publish again"
        )
    if len(content) != record.size:
        raise UnknownDocument.of_field(f"documents.{record.key}", f"it has {len(content)} bytes, not {record.size}")


def _fits_row(text: str) -> bool:
    """Postgres keeps no NUL character in a text."""
    return "\x00" not in text and len(text.encode()) <= limits.INLINE_DOCUMENT_BYTES


def _uploaded_index(snapshot_id: str, objects: ObjectStore) -> SnapshotIndex:
    content = objects.get(object_key(snapshot_id))
    if content is None:
        raise UnknownDocument.of_field("index", "was neither sent nor uploaded; publish again from the bundle")
    if len(content) > limits.INDEX_BYTES:
        raise TooLarge.of_field("index", f"has {len(content)} bytes, and {limits.INDEX_BYTES} is the most")
    try:
        return SnapshotIndex.model_validate_json(content)
    except ValidationError as error:
        fields = [
            FieldError(".".join(("index", *map(str, one["loc"]))), InvalidRequest.code, one["msg"])
            for one in error.errors(include_input=False)
        ]
        raise InvalidRequest("; ".join(f"{one.field}: {one.message}" for one in fields), fields=fields) from None
