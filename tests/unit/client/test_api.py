from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest
from pydantic import SecretStr

from chalicelib.client.api import ApiClient
from chalicelib.client.deadline import Deadline
from chalicelib.kernel import limits
from chalicelib.kernel.errors import (
    AnswerUnusable,
    IdReused,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    Throttled,
    TidemillError,
    TooLarge,
    Unavailable,
    UsageError,
)
from tests.doubles import HandClock
from tests.scripted_server import DROPPED, Reply, ScriptedServer, good, problem
from tests.unit.client.conftest import TOKEN


def test_a_call_sends_the_token_and_decodes_the_answer(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: good({"a": 1}, 201, **{"x-request-id": "r1"}))
    answer = api.call("POST", "/things", body={"name": "é"}, query={"limit": 2, "all": True, "cursor": None})
    assert (answer.status, answer.body, answer.request_id) == (201, {"a": 1}, "r1")
    asked = server.asked[0]
    assert asked.path == "/v1/things?limit=2&all=true"
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert asked.json == {"name": "é"}


def test_a_token_of_one_call_replaces_the_client_s(api: ApiClient, server: ScriptedServer) -> None:
    api.call("GET", "/x", token=SecretStr("tmw_other_token_of_a_claim"))
    assert server.asked[0].headers["authorization"] == "Bearer tmw_other_token_of_a_claim"


def test_no_token_no_header(server: ScriptedServer, clock: HandClock) -> None:
    with ApiClient(server.url, None, clock=clock) as api:
        assert api.call("GET", "/health").body == {}
    assert "authorization" not in server.asked[0].headers


def test_an_empty_answer_has_no_body(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: Reply(204, b""))
    assert api.call("DELETE", "/x").body is None


# --- redirects and addresses


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_redirect_is_refused_and_never_followed(
    api: ApiClient, server: ScriptedServer, method: str, status: int
) -> None:
    server.answer(lambda _: Reply(status, b"", {"location": "http://evil.example.com/steal?token=abc"}))
    with pytest.raises(AnswerUnusable) as refused:
        api.call(method, "/x", repeatable=True)
    assert len(server.asked) == 1
    assert "evil.example.com" in str(refused.value)
    assert "token=abc" not in str(refused.value)


def test_no_client_is_made_for_plain_http_to_another_machine(clock: HandClock) -> None:
    with pytest.raises(UsageError) as refused:
        ApiClient("http://api.example.com", TOKEN, clock=clock)
    assert TOKEN not in str(refused.value)


def test_a_proxy_of_the_environment_never_sees_a_request_to_this_machine(
    server: ScriptedServer, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with ApiClient(server.url, TOKEN, clock=clock) as api:
        assert api.call("GET", "/x").status == 200


# --- bounds


def test_an_answer_over_the_limit_is_not_read_to_its_end(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: Reply(200, b"1" * (limits.RESPONSE_BODY_BYTES + 1)))
    with pytest.raises(AnswerUnusable, match="10 MB"):
        api.call("GET", "/x")
    with pytest.raises(OutcomeUnknown, match="same id"):
        api.call("POST", "/x", body={}, repeatable=True)


def test_a_compressed_answer_is_refused_instead_of_unpacked(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: Reply(200, b"abc", {"content-encoding": "gzip"}))
    with pytest.raises(AnswerUnusable, match="compressed"):
        api.call("GET", "/x")
    assert server.asked[0].headers["accept-encoding"] == "identity"


def test_a_request_over_the_limit_is_not_sent(api: ApiClient, server: ScriptedServer) -> None:
    with pytest.raises(TooLarge, match="at most"):
        api.call("POST", "/x", body={"text": "x" * limits.REQUEST_BODY_BYTES})
    assert server.asked == []


@pytest.mark.parametrize("content", [b"<html>", b"{", b"[" * 100_000, b"\xff"])
def test_an_answer_that_is_no_json(api: ApiClient, server: ScriptedServer, content: bytes) -> None:
    server.answer(lambda _: Reply(200, content))
    with pytest.raises(AnswerUnusable, match="not JSON"):
        api.call("GET", "/x")


# --- problems


def test_a_problem_becomes_the_error_of_its_code(api: ApiClient, server: ScriptedServer) -> None:
    fields = [{"field": "cron", "code": "never_fires", "message": "never fires"}]
    server.answer(lambda _: problem(422, "invalid_request", "cron: never fires", errors=fields, facts={"state": "x"}))
    with pytest.raises(InvalidRequest) as refused:
        api.call("POST", "/x", body={}, repeatable=True)
    error = refused.value
    assert error.detail == "cron: never fires"
    assert [(one.field, one.code, one.message) for one in error.fields] == [("cron", "never_fires", "never fires")]
    assert error.facts["request_id"] == "req_of_the_server"
    assert (error.facts["state"], error.facts["status"]) == ("x", 422)
    assert len(server.asked) == 1


def test_an_unknown_code_keeps_its_status(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: problem(409, "of_a_later_release", "something new"))
    with pytest.raises(TidemillError) as refused:
        api.call("POST", "/x", body={})
    assert type(refused.value) is TidemillError
    assert refused.value.facts["status"] == 409
    assert refused.value.facts["code"] == "of_a_later_release"
    assert refused.value.detail == "something new"


@pytest.mark.parametrize("content", [b"", b"<html>no</html>", b"[]", b'{"errors": 3, "detail": 4}', b"[" * 100_000])
def test_an_error_without_a_document_still_says_something(
    api: ApiClient, server: ScriptedServer, content: bytes
) -> None:
    server.answer(lambda _: Reply(404, content))
    with pytest.raises(TidemillError, match="status 404"):
        api.call("GET", "/x")


def test_secrets_in_a_problem_are_hidden(api: ApiClient, server: ScriptedServer) -> None:
    detail = f"no: {TOKEN}; tml_AnotherToken123; https://s3/x?X-Amz-Signature=deadbeef&a=1"
    server.answer(lambda _: problem(404, "not_found", detail))
    with pytest.raises(NotFound) as refused:
        api.call("GET", "/x")
    shown = repr(refused.value) + str(refused.value)
    assert TOKEN not in shown
    assert "AnotherToken123" not in shown
    assert "deadbeef" not in shown


# --- repeating


def test_a_lost_reply_is_repeated_with_the_same_body(api: ApiClient, server: ScriptedServer) -> None:
    server.answer_in_turn(DROPPED, DROPPED, good({"reused": True}))
    answer = api.call("POST", "/runs", body={"run_id": "run_1"}, repeatable=True)
    assert answer.body == {"reused": True}
    assert len(server.asked) == 3
    assert {one.content for one in server.asked} == {b'{"run_id":"run_1"}'}


def test_a_change_without_an_id_is_never_repeated(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: DROPPED)
    with pytest.raises(OutcomeUnknown, match="may or may not"):
        api.call("POST", "/admin/tokens", body={})
    assert len(server.asked) == 1


def test_a_change_that_stays_unanswered_is_unknown(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: DROPPED)
    with pytest.raises(OutcomeUnknown):
        api.call("POST", "/x", body={}, repeatable=True)
    assert 2 <= len(server.asked) <= limits.HTTP_ATTEMPTS


def test_a_read_that_stays_unanswered_is_unavailable(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: DROPPED)
    with pytest.raises(Unavailable):
        api.call("GET", "/x")
    assert len(server.asked) == limits.HTTP_ATTEMPTS


def test_one_uncertain_attempt_keeps_a_later_refusal_uncertain(api: ApiClient, server: ScriptedServer) -> None:
    server.answer_in_turn(DROPPED, problem(503, "unavailable"))
    with pytest.raises(OutcomeUnknown):
        api.call("POST", "/x", body={}, repeatable=True)


def test_one_uncertain_attempt_then_a_conflict_is_a_conflict(api: ApiClient, server: ScriptedServer) -> None:
    server.answer_in_turn(DROPPED, problem(409, "id_reused"))
    with pytest.raises(IdReused):
        api.call("POST", "/x", body={}, repeatable=True)


@pytest.mark.parametrize("status", [502, 504])
def test_a_gateway_s_time_out_is_no_acknowledgement(api: ApiClient, server: ScriptedServer, status: int) -> None:
    server.answer(lambda _: Reply(status, b"<html>"))
    with pytest.raises(OutcomeUnknown):
        api.call("POST", "/x", body={})
    with pytest.raises(TidemillError) as read:
        api.call("GET", "/x")
    assert not isinstance(read.value, OutcomeUnknown)


def test_the_server_s_own_time_out_of_a_read_is_no_uncertainty(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: problem(504, "timeout"))
    with pytest.raises(Unavailable):
        api.call("GET", "/x")


def test_retry_after_is_kept_to_the_second(api: ApiClient, server: ScriptedServer, clock: HandClock) -> None:
    busy = Reply(429, problem(429, "throttled").content, {"retry-after": "17"})
    server.answer_in_turn(busy, good({}))
    assert api.call("GET", "/x").status == 200
    assert clock.elapsed_seconds() == 17


def test_retry_after_as_a_date(api: ApiClient, server: ScriptedServer, clock: HandClock) -> None:
    busy = Reply(503, problem(503, "unavailable").content, {"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"})
    server.answer_in_turn(busy, good({}))
    assert api.call("GET", "/x").status == 200
    assert clock.elapsed_seconds() == 30


def test_a_wait_beyond_the_time_for_the_call_ends_it(api: ApiClient, server: ScriptedServer, clock: HandClock) -> None:
    server.answer(lambda _: Reply(429, problem(429, "throttled").content, {"retry-after": "100000"}))
    with pytest.raises(Throttled) as refused:
        api.call("GET", "/x")
    assert clock.elapsed_seconds() == 0
    assert refused.value.facts["retry_after_seconds"] == 100_000


def test_a_busy_server_is_not_asked_twice_for_a_change_without_an_id(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: problem(429, "throttled"))
    with pytest.raises(Throttled):
        api.call("POST", "/x", body={})
    assert len(server.asked) == 1


def test_no_server_is_unavailable_also_for_a_change(clock: HandClock) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with (
        ApiClient(f"http://127.0.0.1:{port}", TOKEN, clock=clock) as api,
        pytest.raises(Unavailable, match="no connection") as refused,
    ):
        api.call("POST", "/x", body={})
    assert "tidemill dev" in str(refused.value)


def test_the_time_of_a_command_bounds_all_its_calls(server: ScriptedServer, clock: HandClock) -> None:
    with ApiClient(server.url, TOKEN, clock=clock, until=Deadline(clock, 10)) as api:
        assert api.call("GET", "/x").status == 200
        clock.advance(11)
        with pytest.raises(Unavailable, match="--timeout"):
            api.call("GET", "/x")
    assert len(server.asked) == 1


def test_an_answer_that_drips_is_cut_at_the_request_s_time(clock: HandClock) -> None:
    class Dripping(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while True:
                clock.advance(1)
                yield b" "

    class Slow(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, stream=Dripping())

    with (
        ApiClient("https://api.example.com", TOKEN, clock=clock, transport=Slow(), total_seconds=60) as api,
        pytest.raises(Unavailable),
    ):
        api.call("GET", "/x")
    assert clock.elapsed_seconds() <= 62


# --- pages


def test_pages_follow_the_cursor_under_the_same_filters(api: ApiClient, server: ScriptedServer) -> None:
    server.answer_in_turn(
        good({"items": [{"n": 1}], "next_cursor": "c1"}), good({"items": [{"n": 2}], "next_cursor": None})
    )
    assert [item["n"] for item in api.pages("/runs", {"job": "a"})] == [1, 2]
    assert server.paths() == ["GET /v1/runs?job=a", "GET /v1/runs?job=a&cursor=c1"]


def test_a_list_that_turns_in_a_circle_ends(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: good({"items": [], "next_cursor": "c1"}))
    with pytest.raises(AnswerUnusable, match="again and again"):
        list(api.pages("/runs"))


def test_a_list_that_is_none(api: ApiClient, server: ScriptedServer) -> None:
    server.answer(lambda _: good({"x": 1}))
    with pytest.raises(AnswerUnusable, match="no list"):
        list(api.pages("/runs"))


# --- secrets


def test_no_representation_shows_the_token(api: ApiClient) -> None:
    assert TOKEN not in repr(api)
    assert TOKEN not in str(vars(api))


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "\x00", "ümlaut"])
def test_a_token_that_no_header_can_carry_is_refused_unseen(clock: HandClock, token: str) -> None:
    with pytest.raises(UsageError) as refused:
        ApiClient("http://127.0.0.1:1", token, clock=clock)
    assert token == "" or token not in str(refused.value)
