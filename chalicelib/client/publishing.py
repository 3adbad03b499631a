"""Send one bundle: what is large to object storage, what is small in the request, then one POST (scheduler.md 4.4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..kernel import limits
from ..kernel.errors import AnswerUnusable, OutcomeUnknown
from .address import path_of
from .api import ApiClient
from .uploads import upload_all

Say = Callable[[str], None]

# What the request needs besides index and documents: ids, fingerprint, braces and keys.
_ENVELOPE_BYTES = 4_096
# Quotes, colon and comma around each document, and its hash.
_ENTRY_BYTES = 80


class Canonical(Protocol):
    """The index of a bundle."""

    def canonical(self) -> str:
        """Its canonical text, whose SHA-256 is the snapshot id."""


class PublishableBundle(Protocol):
    """A whole bundle, held in memory from compile to acknowledgement, so that its files cannot change (S3)."""

    @property
    def snapshot_id(self) -> str:
        """SHA-256 of the canonical index."""

    @property
    def index(self) -> Canonical:
        """The index."""

    @property
    def documents(self) -> Mapping[str, bytes]:
        """The documents that the index lists, by their SHA-256."""


class PublishableCompilation(Protocol):
    """A bundle with the place that it was compiled for."""

    @property
    def bundle(self) -> PublishableBundle:
        """What is published."""

    @property
    def location(self) -> str:
        """The project's location."""

    @property
    def target(self) -> str:
        """The target that it was compiled for."""

    @property
    def connection_fingerprint(self) -> str | None:
        """A hash of the target's connection, without a secret."""


@dataclass(frozen=True, slots=True)
class PublicationPlan:
    """What travels how: documents inside the request, documents to storage, and where the index goes."""

    inline: tuple[str, ...]
    uploaded: tuple[str, ...]
    index_inline: bool


def plan_publication(index_bytes: int, documents: Sequence[tuple[str, int, int | None]]) -> PublicationPlan:
    """Divide ``(sha256, size, size in the request)`` so that the request stays under its limit.

    The last figure is ``None`` for a document that is not text. Smaller documents go first, so that most fit.
    """
    index_inline = index_bytes <= limits.REQUEST_BODY_BYTES // 2
    room = limits.REQUEST_BODY_BYTES - _ENVELOPE_BYTES - (index_bytes if index_inline else 0)
    inline: set[str] = set()
    for sha256, size, encoded in sorted(documents, key=lambda document: (document[1], document[0])):
        if encoded is None or size > limits.INLINE_DOCUMENT_BYTES or encoded + _ENTRY_BYTES > room:
            continue
        room -= encoded + _ENTRY_BYTES
        inline.add(sha256)
    uploaded = [sha256 for sha256, _, _ in documents if sha256 not in inline]
    return PublicationPlan(tuple(sorted(inline)), tuple(sorted(uploaded)), index_inline)


def publish_compilation(
    api: ApiClient,
    compilation: PublishableCompilation,
    *,
    publication_id: str,
    expect_current: str | None = None,
    say: Say,
) -> dict[str, Any]:
    """Publish what was just compiled to the location and target that it was compiled for; see ``publish_bundle``."""
    return publish_bundle(
        api,
        compilation.bundle,
        location=compilation.location,
        target=compilation.target,
        publication_id=publication_id,
        connection_fingerprint=compilation.connection_fingerprint,
        expect_current=expect_current,
        say=say,
    )


def publish_bundle(
    api: ApiClient,
    bundle: PublishableBundle,
    *,
    location: str,
    target: str,
    publication_id: str,
    connection_fingerprint: str | None = None,
    expect_current: str | None = None,
    say: Say,
) -> dict[str, Any]:
    """Publish and return the server's result. Repeating it with the same id changes nothing and gives the same answer.

    Raises ``OutcomeUnknown`` when the publication was not acknowledged, and ``SnapshotNotCurrent`` when
    ``expect_current`` is not what is current.
    """
    index, texts = bundle.index.canonical(), _small_texts(bundle.documents)
    plan = plan_publication(len(index.encode()), _figures(bundle.documents, texts))
    wanted = {sha256: bundle.documents[sha256] for sha256 in plan.uploaded}
    if not plan.index_inline:
        wanted[bundle.snapshot_id] = index.encode()
    _upload(api, wanted, {"location": location, "target": target}, say)
    say(f"publishing snapshot {bundle.snapshot_id[:12]} to {location}/{target}")
    body = {
        "publication_id": publication_id,
        "snapshot_id": bundle.snapshot_id,
        "index": json.loads(index) if plan.index_inline else None,
        "documents": {sha256: texts[sha256] for sha256 in plan.inline},
        "connection_fingerprint": connection_fingerprint,
        "expect_current": expect_current,
    }
    path = path_of("locations", location, "targets", target, "snapshots")
    return _checked(api.call("POST", path, body=body, repeatable=True).body, bundle.snapshot_id)


def _small_texts(documents: Mapping[str, bytes]) -> dict[str, str]:
    """The small documents that are text; a NUL cannot be stored in a text column."""
    texts: dict[str, str] = {}
    for sha256, content in documents.items():
        if len(content) <= limits.INLINE_DOCUMENT_BYTES and b"\x00" not in content:
            try:
                texts[sha256] = content.decode()
            except UnicodeDecodeError:
                continue
    return texts


def _figures(documents: Mapping[str, bytes], texts: Mapping[str, str]) -> list[tuple[str, int, int | None]]:
    return [(sha256, len(content), _encoded_size(texts.get(sha256))) for sha256, content in documents.items()]


def _encoded_size(text: str | None) -> int | None:
    return None if text is None else len(json.dumps(text, ensure_ascii=False).encode())


def _upload(api: ApiClient, wanted: Mapping[str, bytes], place: Mapping[str, str], say: Say) -> None:
    """Upload those of the documents that the store lacks, a page of hashes at a time."""
    hashes = list(wanted)
    for start in range(0, len(hashes), limits.PAGE_MAX):
        page = hashes[start : start + limits.PAGE_MAX]
        links = _links(
            api.call("POST", "/snapshots/uploads", body={**place, "sha256s": page}, repeatable=True).body, page
        )
        say(f"uploading {len(links)} of {len(page)} large documents; the others are there already")
        if links:
            upload_all(links, wanted, clock=api.clock)


def _links(body: Any, wanted: Sequence[str]) -> dict[str, str]:
    """The presigned link of each document that the store lacks; every other wanted one must be named as present."""
    rows = body.get("uploads") if isinstance(body, dict) else None
    try:
        answered = {str(row["sha256"]): row["url"] for row in rows or []}
    except (KeyError, TypeError):
        answered = {}
    if not answered.keys() >= set(wanted):
        raise AnswerUnusable("the server did not say which documents to upload; is its release the same as this one?")
    return {sha256: str(answered[sha256]) for sha256 in wanted if answered[sha256] is not None}


def _checked(result: Any, snapshot_id: str) -> dict[str, Any]:
    if not isinstance(result, dict) or result.get("snapshot_id") != snapshot_id:
        raise OutcomeUnknown("the server acknowledged something else than this snapshot; repeat with the same id")
    return result
