"""What happens around every operation, shown on operations made for the test."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Annotated

import pytest
from chalice.app import Chalice
from pydantic import Field

from chalicelib.bootstrap import Services
from chalicelib.entrypoints.api.application import add_routes, build_app
from chalicelib.entrypoints.api.routing import METHODS, SECURITY_HEADERS, Call, Nothing, Reply, Resource
from chalicelib.entrypoints.api.scopes import installation
from chalicelib.entrypoints.api.shapes import ClientId
from chalicelib.kernel.errors import STATUS, TidemillError, Unavailable, all_errors
from chalicelib.kernel.limits import REQUEST_BODY_BYTES, RETRY_AFTER_SECONDS
from chalicelib.kernel.records import Instant, Record
from tests.api.site import Answered, Caller, Site

probe = Resource("probe")


class NamedPath(Record):
    name: str


class Numbers(Record):
    count: Annotated[int, Field(ge=1)] = 1
    after: Instant | None = None


class Part(Record):
    size: int


class Thing(Record):
    thing_id: ClientId
    text: str = ""
    ratio: float = 0.0
    parts: tuple[Part, ...] = ()


class Echo(Record):
    name: str = ""
    count: int = 0
    at: Instant | None = None
    text: str = ""


@probe.operation("GET", "/names/{name}")
def read_name(call: Call[NamedPath, Numbers, None]) -> Echo:
    """Echo."""
    return Echo(name=call.path.name, count=call.query.count, at=call.query.after)


@probe.operation("POST", "/things", permission="administer", scope=installation, statuses=[HTTPStatus.CREATED])
def make_thing(call: Call[Nothing, Nothing, Thing]) -> Reply[Echo]:
    """Echo."""
    return Reply(HTTPStatus.CREATED, Echo(text=call.body.text, count=len(call.body.parts)))


@probe.operation("GET", "/errors/{name}")
def raise_error(call: Call[NamedPath, Nothing, None]) -> Echo:
    """Raise the error of that code, or one that nobody foresaw."""
    if call.path.name == "unforeseen":
        raise RuntimeError("an inner secret")
    if call.path.name == "undeclared":
        return Reply(HTTPStatus.ACCEPTED, Echo())  # type: ignore[return-value]  # the mistake under test
    kinds = {kind.code: kind for kind in all_errors()}
    raise kinds[call.path.name].of_field("probe.field", "it is wrong")


@pytest.fixture
def app(shared_site: Site) -> Chalice:
    app = Chalice(app_name="probe", configure_logs=False)
    add_routes(app, probe.operations, lambda: shared_site.services)
    return app


@pytest.fixture
def anyone(app: Chalice) -> Caller:
    return Caller(app)


@pytest.fixture
def operator(app: Chalice, shared_site: Site) -> Caller:
    return Caller(app, shared_site.operator.token)


THING = {"thing_id": "thing_0000000000000001"}


def send(operator: Caller, body: bytes, content_type: str = "application/json") -> Answered:
    return operator.send("POST", "/v1/things", body, content_type=content_type)


def assert_problem(answer: Answered, status: int, code: str) -> None:
    assert (answer.status, answer.body["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.body["status"] == status
    assert answer.body["type"] == f"urn:tidemill:problem:{code}"
    assert answer.body["title"]
    assert answer.body["request_id"] == answer.headers["x-request-id"]
    assert {name.lower(): answer.headers.get(name.lower()) for name in SECURITY_HEADERS} == {
        name.lower(): value for name, value in SECURITY_HEADERS.items()
    }


def test_a_good_answer_carries_the_request_id_and_the_security_headers(anyone: Caller) -> None:
    answer = anyone.get("/v1/names/x")
    assert answer.status == 200
    assert answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["strict-transport-security"].startswith("max-age=")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def test_two_requests_have_two_ids_and_a_client_cannot_choose_one(anyone: Caller) -> None:
    first = anyone.send("GET", "/v1/names/x", x_request_id="mine")
    second = anyone.send("GET", "/v1/names/x", x_request_id="mine")
    assert len({first.headers["x-request-id"], second.headers["x-request-id"], "mine"}) == 3


def test_a_path_parameter_is_percent_decoded_once(anyone: Caller) -> None:
    assert anyone.get("/v1/names/orders%2Fschedule").body["name"] == "orders/schedule"
    assert anyone.get("/v1/names/a%252Fb").body["name"] == "a%2Fb"
    assert anyone.get("/v1/names/a+b").body["name"] == "a+b"
    assert anyone.get("/v1/names/%C3%A9").body["name"] == "é"


def test_a_path_that_is_no_utf8_is_malformed(anyone: Caller) -> None:
    assert_problem(anyone.get("/v1/names/%FF"), 400, "malformed")


def test_query_parameters_are_typed(anyone: Caller) -> None:
    answer = anyone.get("/v1/names/x?count=3&after=2026-03-01T08:00:00%2B02:00")
    assert answer.body["count"] == 3
    assert answer.body["at"] == "2026-03-01T06:00:00.000000Z"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("count=0", "count"),
        ("count=many", "count"),
        ("count=" + "9" * 5000, "count"),
        ("after=2026-03-01T08:00:00", "after"),
        ("unknown=1", "unknown"),
        ("count=1&count=2", "count"),
    ],
)
def test_a_wrong_query_parameter_is_named(anyone: Caller, query: str, field: str) -> None:
    answer = anyone.get(f"/v1/names/x?{query}")
    assert_problem(answer, 422, "invalid_request")
    assert [error["field"] for error in answer.body["errors"]] == [field]
    assert field in answer.body["detail"]


@pytest.mark.parametrize("method", [method for method in METHODS if method != "GET"])
def test_a_method_that_a_path_does_not_offer_is_answered_here(anyone: Caller, method: str) -> None:
    answer = anyone.send(method, "/v1/names/x")
    assert_problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET"


def test_every_path_of_the_api_registers_every_method(shared_site: Site) -> None:
    routes = build_app(lambda: shared_site.services).routes
    assert routes
    assert {path: sorted(methods) for path, methods in routes.items()} == {path: sorted(METHODS) for path in routes}


def test_a_body_must_be_declared_as_json(operator: Caller) -> None:
    body = json.dumps(THING).encode()
    assert send(operator, body, "application/json; charset=UTF-8").status == 201
    for wrong in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", ""):
        assert_problem(send(operator, body, wrong), 415, "unsupported_media")
    assert_problem(operator.send("POST", "/v1/things", body), 415, "unsupported_media")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b'{"thing_id": "thing_0000000000000001", "thing_id": "thing_0000000000000002"}',
        b'{"parts": [{"size": 1, "size": 2}]}',
        b'{"ratio": NaN}',
        b'{"ratio": 1e999}',
        b'{"text": "\\ud800"}',
        b'{"ratio": ' + b"9" * 5000 + b"}",
        b"[" * 200_000,
    ],
    ids=["empty", "cut", "bytes", "twice", "twice_inside", "nan", "infinite", "surrogate", "digits", "deep"],
)
def test_what_is_no_plain_json_is_malformed(operator: Caller, body: bytes) -> None:
    assert_problem(send(operator, body), 400, "malformed")


def test_every_wrong_field_is_named_by_its_path(operator: Caller) -> None:
    body = {**THING, "text": 5, "parts": [{"size": 1}, {"size": "2"}, {}], "extra": True}
    answer = operator.json("POST", "/v1/things", body)
    assert_problem(answer, 422, "invalid_request")
    found = {error["field"]: error["code"] for error in answer.body["errors"]}
    assert found == {
        "text": "string_type",
        "parts.1.size": "int_type",
        "parts.2.size": "missing",
        "extra": "extra_forbidden",
    }


def test_a_body_of_another_shape_is_named_as_a_whole(operator: Caller) -> None:
    answer = operator.json("POST", "/v1/things", ["no", "object"])
    assert_problem(answer, 422, "invalid_request")
    assert [error["field"] for error in answer.body["errors"]] == ["body"]


@pytest.mark.parametrize("thing_id", ["short", "x" * 65, "with space 0000000", "ünicode_0000000000"])
def test_an_id_that_is_not_well_formed_has_its_own_code(operator: Caller, thing_id: str) -> None:
    answer = operator.json("POST", "/v1/things", {"thing_id": thing_id})
    assert_problem(answer, 422, "id_invalid")
    assert answer.body["errors"][0]["field"] == "thing_id"


def test_a_refused_value_is_not_repeated(operator: Caller) -> None:
    answer = operator.json("POST", "/v1/things", {**THING, "ratio": "tml_a_pasted_secret"})
    assert_problem(answer, 422, "invalid_request")
    assert "pasted" not in answer.text


def test_a_body_may_be_4_mib_and_not_a_byte_more(operator: Caller) -> None:
    frame = len(json.dumps({**THING, "text": ""}))
    fits = json.dumps({**THING, "text": "x" * (REQUEST_BODY_BYTES - frame)}).encode()
    assert len(fits) == REQUEST_BODY_BYTES
    assert send(operator, fits).status == 201
    assert_problem(send(operator, fits + b" "), 413, "too_large")


def test_nobody_without_a_token_learns_what_is_wrong_with_a_body(anyone: Caller) -> None:
    answer = anyone.send("POST", "/v1/things", b"{", content_type="text/plain")
    assert_problem(answer, 401, "not_authenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer ", "Basic dXNlcjp3b3Jk", "Session tms_x", "tmo_x", "Bearer a b"]
)
def test_only_a_bearer_token_identifies(app: Chalice, value: str) -> None:
    answer = Caller(app).send("POST", "/v1/things", json.dumps(THING).encode(), authorization=value)
    assert_problem(answer, 401, "not_authenticated")


def test_the_scheme_is_read_in_any_case(operator: Caller) -> None:
    answer = operator.send(
        "POST",
        "/v1/things",
        json.dumps(THING).encode(),
        content_type="application/json",
        authorization=f"bearer {operator.token}",
    )
    assert answer.status == 201


@pytest.mark.parametrize(
    "kind",
    [kind for kind in all_errors() if kind.code in STATUS and kind is not TidemillError],
    ids=lambda kind: kind.code,
)
def test_every_error_that_has_a_status_leaves_as_a_problem(anyone: Caller, kind: type[TidemillError]) -> None:
    answer = anyone.get(f"/v1/errors/{kind.code}")
    assert_problem(answer, STATUS[kind.code], kind.code)
    assert answer.body["title"] == kind.title()
    assert answer.body["instance"] == f"/v1/errors/{kind.code}"
    if kind is not Unavailable:
        assert answer.body["errors"] == [{"field": "probe.field", "code": kind.code, "message": "it is wrong"}]


@pytest.mark.parametrize("code", ["unavailable", "throttled"])
def test_what_passes_says_when_to_come_again(anyone: Caller, code: str) -> None:
    assert anyone.get(f"/v1/errors/{code}").headers["retry-after"] == str(RETRY_AFTER_SECONDS)


def test_an_unavailable_store_does_not_name_its_host(anyone: Caller) -> None:
    answer = anyone.get("/v1/errors/unavailable")
    assert "it is wrong" not in answer.text
    assert answer.body["errors"] == []


@pytest.mark.parametrize("name", ["unforeseen", "undeclared", "folder_in_use", "internal"])
def test_what_nobody_foresaw_shows_nothing_and_is_logged(
    anyone: Caller, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = anyone.get(f"/v1/errors/{name}")
    assert_problem(answer, 500, "internal")
    assert "secret" not in answer.text
    assert "Error" not in answer.body["detail"]
    logged = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    mine = [line for line in logged if line.get("request_id") == answer.body["request_id"]]
    assert [line["level"] for line in mine] == ["ERROR"]
    assert mine[0]["error_at"]


def test_services_that_cannot_be_wired_are_answered_too() -> None:
    def refuse() -> Services:
        raise Unavailable("no settings")

    app = Chalice(app_name="probe", configure_logs=False)
    add_routes(app, probe.operations, refuse)
    assert_problem(Caller(app).get("/v1/names/x"), 503, "unavailable")


def test_no_secret_reaches_the_log(operator: Caller, capsys: pytest.CaptureFixture[str]) -> None:
    operator.json("POST", "/v1/things", {**THING, "text": "a body is not logged"})
    operator.json("POST", "/v1/things", {"thing_id": 5})
    logged = capsys.readouterr()
    assert '"operation":"make_thing"' in logged.err
    assert operator.token is not None
    assert operator.token not in logged.err + logged.out
    assert "a body is not logged" not in logged.err + logged.out
    assert logged.out == ""


def test_a_permission_without_a_scope_is_refused_when_it_is_declared() -> None:
    with pytest.raises(TypeError, match="scope"):
        Resource("wrong").operation("GET", "/x", permission="administer")


def test_an_operation_that_is_declared_twice_is_refused(shared_site: Site) -> None:
    app = Chalice(app_name="probe", configure_logs=False)
    with pytest.raises(TypeError, match="declared twice"):
        add_routes(app, [*probe.operations, *probe.operations], lambda: shared_site.services)


@pytest.mark.parametrize(
    "at", ["0.5", "1767225600", "2026-03-01", "0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00"]
)
def test_an_instant_is_a_text_with_a_zone_inside_the_calendar(anyone: Caller, at: str) -> None:
    answer = anyone.get(f"/v1/names/x?after={at}")
    assert_problem(answer, 422, "invalid_request")
    assert [error["field"] for error in answer.body["errors"]] == ["after"]
