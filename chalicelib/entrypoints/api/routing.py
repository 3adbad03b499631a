"""One decorator for every operation of the API, and what happens around each.

An operation says its method, path, permission, where the permission must hold, its statuses and errors; its models are
those of its annotations. ``view_of`` turns the operations of one path into a view: identify the caller, read the
address, authorise, read the body, call, answer. What goes wrong anywhere leaves as a problem document.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from chalice.app import Request, Response
from pydantic import BaseModel, TypeAdapter

from ...access import Permission, Principal, require
from ...kernel.errors import MethodNotAllowed, NotAuthenticated, NotFound, TidemillError
from ...kernel.records import Record
from ..log import logger
from ..wiring import Wire
from .parsing import body_fields, check_size, path_fields, query_fields
from .problems import PROBLEM_TYPE, problem_headers, problem_of

if TYPE_CHECKING:
    from ...bootstrap import Services

PathT = TypeVar("PathT")
QueryT = TypeVar("QueryT")
BodyT = TypeVar("BodyT")
AnswerT = TypeVar("AnswerT")
Handler = TypeVar("Handler", bound=Callable[..., object])

CONDITIONAL_HEADERS = ("if-match", "if-none-match")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
SECURITY_HEADERS: Mapping[str, str] = {
    "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Nothing(Record):
    """No parameters."""


@dataclass(frozen=True, slots=True)
class Call(Generic[PathT, QueryT, BodyT]):
    """One request as its handler sees it. ``caller`` is ``None`` only where an operation needs no permission."""

    services: Services
    caller: Principal | None
    path: PathT
    query: QueryT
    body: BodyT
    request_id: str
    # the conditional headers, by their names in lower case; read only where the operation is conditional
    conditions: Mapping[str, str] = field(default_factory=dict)

    @property
    def principal(self) -> Principal:
        """Who calls."""
        if self.caller is None:
            raise NotAuthenticated
        return self.caller


@dataclass(frozen=True, slots=True)
class Reply(Generic[AnswerT]):
    """An answer with a status other than the operation's first, or with its own entity tag."""

    status: HTTPStatus
    body: AnswerT
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a permission must hold; without a location: in the whole installation."""

    location: str | None = None
    target: str | None = None
    run_id: str | None = None


Scope = Callable[[Call[Any, Any, Any]], Place]


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the table that routes, documents and tests read. ``body`` is ``None`` where none is read."""

    name: str
    method: str
    path: str
    tag: str
    description: str
    permission: Permission | None
    scope: Scope | None
    statuses: tuple[HTTPStatus, ...]
    errors: tuple[type[TidemillError], ...]
    path_model: type[BaseModel]
    query_model: type[BaseModel]
    body_model: type[BaseModel] | None
    answer: TypeAdapter[Any]
    strict: bool
    conditional: bool
    handler: Callable[..., object] = field(repr=False)


class Resource:
    """The operations of one resource; ``prefix`` is ``/v1`` for all of them."""

    def __init__(self, tag: str, prefix: str = "/v1") -> None:
        self.tag = tag
        self.operations: list[Operation] = []
        self._prefix = prefix

    def operation(
        self,
        method: str,
        path: str,
        *,
        permission: Permission | None = None,
        scope: Scope | None = None,
        statuses: Sequence[HTTPStatus] = (HTTPStatus.OK,),
        errors: Sequence[type[TidemillError]] = (),
        strict: bool = True,
        conditional: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Declare the decorated function, ``def name(call: Call[Path, Query, Body]) -> Answer``, as an operation.

        ``strict`` says that no value of the body is read as another type than it has. ``conditional`` says that it changes
        a whole document, so that it reads ``If-Match`` and ``If-None-Match`` and answers with an ``ETag``.
        """
        if (permission is None) != (scope is None):
            raise TypeError(f"{method} {path}: a permission needs the scope that it is checked in")

        def declare(handler: Handler) -> Handler:
            hints = get_type_hints(handler)
            path_model, query_model, body_model = get_args(hints["call"])
            row = Operation(
                name=handler.__name__,
                method=method,
                path=self._prefix + path,
                tag=self.tag,
                description=inspect.getdoc(handler) or "",
                permission=permission,
                scope=scope,
                statuses=tuple(statuses),
                errors=tuple(errors),
                path_model=path_model,
                query_model=query_model,
                body_model=None if body_model is type(None) else body_model,
                answer=TypeAdapter(_answer_type(hints["return"])),
                strict=strict,
                conditional=conditional,
                handler=handler,
            )
            self.operations.append(row)
            return handler

        return declare


def _answer_type(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Reply else annotation


def view_of(operations: Mapping[str, Operation], wire: Wire, current: Callable[[], Request]) -> Callable[..., Response]:
    """The view of one path: ``operations`` by method. ``current`` gives the request, as Chalice passes only the path."""

    def view(**encoded: str) -> Response:
        request = current()
        request_id = request_id_of(request)
        try:
            answer = _run(_offered(operations, request.method), wire(), request, encoded, request_id)
        except Exception as error:  # noqa: BLE001  # every error is answered
            answer = problem_answer(error, request.context.get("path", request.path), request_id)
            if answer.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
                answer.headers["Allow"] = ", ".join(operations)
        return answer

    return view


def _offered(operations: Mapping[str, Operation], method: str) -> Operation:
    if method not in operations:
        raise MethodNotAllowed(f"this path offers {', '.join(operations)}")
    return operations[method]


def _run(
    operation: Operation, services: Services, request: Request, encoded: Mapping[str, str], request_id: str
) -> Response:
    raw = request.raw_body
    body = raw.encode() if isinstance(raw, str) else raw
    check_size(body)
    caller = None if operation.permission is None else _caller(services, request)
    call: Call[Any, Any, Any] = Call(
        services=services,
        caller=caller,
        path=path_fields(operation.path_model, encoded),
        query=query_fields(operation.query_model, _query_of(request)),
        body=None,
        request_id=request_id,
        conditions=_conditions(request) if operation.conditional else {},
    )
    _authorise(operation, call)
    # read last: whoever may not call learns nothing about bodies
    return _answer(operation, operation.handler(replace(call, body=_body(operation, request, body))), request_id)


def _conditions(request: Request) -> Mapping[str, str]:
    found = {name: request.headers.get(name) for name in CONDITIONAL_HEADERS}
    return {name: value for name, value in found.items() if value is not None}


def _caller(services: Services, request: Request) -> Principal:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise NotAuthenticated("send Authorization: Bearer and a token")
    return services.access.authenticate(secret.strip())


def _authorise(operation: Operation, call: Call[Any, Any, Any]) -> None:
    if operation.permission is None or operation.scope is None:
        return
    try:
        place = operation.scope(call)
        require(call.principal, operation.permission, place.location, place.target, run_id=place.run_id)
    except NotFound as error:
        # what is not there and what is out of reach must not be told apart
        raise (error if call.principal.kind == "operator" else NotFound()) from None


def _body(operation: Operation, request: Request, body: bytes) -> BaseModel | None:
    if operation.body_model is None:
        return None
    return body_fields(operation.body_model, request.headers.get("content-type", ""), body, strict=operation.strict)


def _query_of(request: Request) -> Mapping[str, Sequence[str]]:
    parameters = request.query_params
    return {} if parameters is None else {name: parameters.getlist(name) for name in parameters}


def _answer(operation: Operation, result: object, request_id: str) -> Response:
    status, body = (result.status, result.body) if isinstance(result, Reply) else (operation.statuses[0], result)
    if status not in operation.statuses:
        raise TypeError(f"{operation.name} answered {status}, which it does not declare")
    text = operation.answer.dump_json(body).decode()
    if operation.method != "GET":
        facts = {"operation": operation.name, "status": int(status), "request_id": request_id}
        logger.info("answered", extra=facts)
    answer = _response(status, "application/json", text, request_id)
    if isinstance(result, Reply) and result.etag is not None:
        answer.headers["ETag"] = result.etag
    return answer


def problem_answer(error: Exception, instance: str, request_id: str) -> Response:
    """The problem document for ``error`` with its headers."""
    problem = problem_of(error, instance, request_id)
    answer = _response(HTTPStatus(problem.status), PROBLEM_TYPE, problem.model_dump_json(), request_id)
    answer.headers.update(problem_headers(problem))
    return answer


def _response(status: HTTPStatus, media: str, text: str, request_id: str) -> Response:
    headers = {"Content-Type": media, "X-Request-Id": request_id, **SECURITY_HEADERS}
    return Response(body=text, headers=dict(headers), status_code=int(status))


def request_id_of(request: Request) -> str:
    """API Gateway's id of the request, else Lambda's; never one that a client chose."""
    return str(request.context.get("requestId") or getattr(request.lambda_context, "aws_request_id", ""))
