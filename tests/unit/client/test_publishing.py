from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.client.api import ApiClient
from chalicelib.client.publishing import plan_publication, publish_bundle, publish_compilation
from chalicelib.client.uploads import upload_all
from chalicelib.kernel.errors import AnswerUnusable, OutcomeUnknown, SnapshotNotCurrent, Unavailable, UsageError
from chalicelib.kernel.limits import HTTP_ATTEMPTS, INLINE_DOCUMENT_BYTES, REQUEST_BODY_BYTES
from tests.doubles import HandClock
from tests.scripted_server import DROPPED, Asked, Reply, ScriptedServer, good, problem

PUBLICATION = "pub_0123456789abcdef"


@dataclass(frozen=True)
class Index:
    text: str

    def canonical(self) -> str:
        return self.text


@dataclass(frozen=True)
class Whole:
    index: Index
    documents: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def snapshot_id(self) -> str:
        return sha256(self.index.text.encode()).hexdigest()


@dataclass(frozen=True)
class Compiled:
    bundle: Whole
    location: str = "cafe"
    target: str = "dev"
    connection_fingerprint: str | None = "f" * 64


def whole(*contents: bytes, index: str = '{"jobs":{}}') -> Whole:
    return Whole(Index(index), {sha256(content).hexdigest(): content for content in contents})


class Store:
    """The server's side of a publication: what it has, and what was published."""

    def __init__(self, server: ScriptedServer, *present: str) -> None:
        self.url = server.url
        self.present = set(present)
        self.uploaded: dict[str, bytes] = {}
        self.published: list[Any] = []
        server.answer(self)

    def __call__(self, asked: Asked) -> Reply:
        if asked.method == "PUT":
            self.uploaded[asked.path.partition("?")[0].removeprefix("/objects/")] = asked.content
            return Reply(200, b"")
        if asked.path == "/v1/snapshots/uploads":
            return good({"uploads": [{"sha256": one, "url": self._link(one)} for one in asked.json["sha256s"]]})
        self.published.append(asked.json)
        return good({"snapshot_id": asked.json["snapshot_id"], "changed": True}, 201)

    def _link(self, document: str) -> str | None:
        return None if document in self.present else f"{self.url}/objects/{document}?X-Amz-Signature=s"


def publish(api: ApiClient, bundle: Whole, **more: Any) -> dict[str, Any]:
    return publish_bundle(
        api, bundle, location="cafe", target="dev", publication_id=PUBLICATION, say=lambda _: None, **more
    )


def test_small_documents_travel_in_the_one_request(api: ApiClient, server: ScriptedServer) -> None:
    store, bundle = Store(server), whole(b"select 1", "é".encode())
    result = publish(api, bundle, expect_current="a" * 64)
    assert result == {"snapshot_id": bundle.snapshot_id, "changed": True}
    assert server.paths() == ["POST /v1/locations/cafe/targets/dev/snapshots"]
    sent = store.published[0]
    assert sent["publication_id"] == PUBLICATION
    assert sent["index"] == {"jobs": {}}
    assert sent["documents"] == {name: content.decode() for name, content in bundle.documents.items()}
    assert (sent["expect_current"], sent["connection_fingerprint"]) == ("a" * 64, None)


def test_large_and_binary_documents_are_uploaded_without_a_credential(api: ApiClient, server: ScriptedServer) -> None:
    large, binary, nul = b"x" * (INLINE_DOCUMENT_BYTES + 1), b"\xff\xfe", b"a\x00b"
    store, bundle = Store(server), whole(large, binary, nul, b"small")
    publish(api, bundle)
    assert store.uploaded == {sha256(one).hexdigest(): one for one in (large, binary, nul)}
    puts = [one for one in server.asked if one.method == "PUT"]
    assert all("authorization" not in one.headers for one in puts)
    assert list(store.published[0]["documents"].values()) == ["small"]


def test_a_document_that_is_there_is_not_sent_again(api: ApiClient, server: ScriptedServer) -> None:
    large = b"x" * (INLINE_DOCUMENT_BYTES + 1)
    store = Store(server, sha256(large).hexdigest())
    publish(api, whole(large))
    assert store.uploaded == {}
    assert len(store.published) == 1


def test_an_index_that_is_too_large_is_uploaded_under_the_snapshot_s_id(api: ApiClient, server: ScriptedServer) -> None:
    text = json.dumps({"jobs": "x" * REQUEST_BODY_BYTES})
    store, bundle = Store(server), whole(index=text)
    publish(api, bundle)
    assert store.uploaded == {bundle.snapshot_id: text.encode()}
    assert store.published[0]["index"] is None


def test_a_compilation_brings_its_place_and_fingerprint(api: ApiClient, server: ScriptedServer) -> None:
    store = Store(server)
    publish_compilation(api, Compiled(whole(b"a")), publication_id=PUBLICATION, say=lambda _: None)
    assert store.published[0]["connection_fingerprint"] == "f" * 64
    assert server.paths() == ["POST /v1/locations/cafe/targets/dev/snapshots"]


def test_a_lost_reply_repeats_the_same_publication(api: ApiClient, server: ScriptedServer) -> None:
    bundle = whole(b"a")
    server.answer_in_turn(DROPPED, good({"snapshot_id": bundle.snapshot_id}))
    assert publish(api, bundle)["snapshot_id"] == bundle.snapshot_id
    assert [one.json["publication_id"] for one in server.asked] == [PUBLICATION, PUBLICATION]
    assert server.asked[0].content == server.asked[1].content


def test_another_current_snapshot_is_a_conflict(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: problem(409, "snapshot_not_current"))
    with pytest.raises(SnapshotNotCurrent):
        publish(api, whole(b"a"), expect_current="b" * 64)


def test_an_acknowledgement_of_something_else_is_not_taken_for_ours(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: good({"snapshot_id": "c" * 64}))
    with pytest.raises(OutcomeUnknown):
        publish(api, whole(b"a"))


def test_a_server_that_forgets_a_document_is_not_published_to(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: good({"uploads": []}))
    with pytest.raises(AnswerUnusable, match="which documents"):
        publish(api, whole(b"\xff"))
    assert server.paths() == ["POST /v1/snapshots/uploads"]


def test_an_upload_is_repeated_until_the_store_takes_it(server: ScriptedServer, clock: HandClock) -> None:
    server.answer_in_turn(DROPPED, Reply(503, b""), Reply(200, b""))
    upload_all({"a": f"{server.url}/a"}, {"a": b"content"}, clock=clock)
    assert [one.content for one in server.asked] == [b"content"] * 3


def test_an_upload_that_is_refused_is_not_repeated_and_shows_no_signature(
    server: ScriptedServer, clock: HandClock
) -> None:
    server.answer(lambda _: Reply(403, b"<Error>"))
    with pytest.raises(AnswerUnusable, match="fresh links") as refused:
        upload_all({"abc": f"{server.url}/a?X-Amz-Signature=deadbeef"}, {"abc": b""}, clock=clock)
    assert "deadbeef" not in str(refused.value)
    assert len(server.asked) == 1


def test_an_upload_is_never_redirected(server: ScriptedServer, clock: HandClock) -> None:
    server.answer(lambda _: Reply(307, b"", {"location": "http://127.0.0.1:9/elsewhere"}))
    with pytest.raises(AnswerUnusable):
        upload_all({"a": f"{server.url}/a"}, {"a": b"x"}, clock=clock)
    assert len(server.asked) == 1


def test_a_store_that_stays_silent_is_unavailable(server: ScriptedServer, clock: HandClock) -> None:
    server.answer(lambda _: DROPPED)
    with pytest.raises(Unavailable, match="publish again"):
        upload_all({"a": f"{server.url}/a"}, {"a": b"x"}, clock=clock)
    assert len(server.asked) == HTTP_ATTEMPTS


def test_no_document_goes_over_plain_http_to_elsewhere(clock: HandClock) -> None:
    with pytest.raises(UsageError, match="https"):
        upload_all({"a": "http://objects.example.com/a"}, {"a": b"x"}, clock=clock)


@given(
    st.integers(0, 3 * REQUEST_BODY_BYTES),
    st.lists(st.tuples(st.integers(0, 2 * INLINE_DOCUMENT_BYTES), st.booleans()), max_size=200),
)
def test_a_plan_sends_every_document_once_and_keeps_the_request_small(
    index_bytes: int, sizes: list[tuple[int, bool]]
) -> None:
    documents = [(f"{number:064x}", size, size + 2 if text else None) for number, (size, text) in enumerate(sizes)]
    plan = plan_publication(index_bytes, documents)
    assert sorted([*plan.inline, *plan.uploaded]) == sorted(name for name, _, _ in documents)
    encoded = {name: size or 0 for name, _, size in documents}
    request = sum(encoded[name] + 70 for name in plan.inline) + (index_bytes if plan.index_inline else 0)
    assert request < REQUEST_BODY_BYTES - 1_000
