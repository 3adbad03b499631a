"""One call of the HTTP API: bounded, repeated where that is safe, and honest about what is not known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx
import tenacity
from pydantic import SecretStr

from ..kernel import limits
from ..kernel.clock import Clock
from ..kernel.errors import AnswerUnusable, OutcomeUnknown, TidemillError, TooLarge, Unavailable
from .address import check_server, host_of, is_loopback
from .deadline import Deadline, retry_after_seconds
from .problems import error_of
from .redaction import as_secret

Query = Mapping[str, str | int | bool | None]

_READS = frozenset({"GET", "HEAD"})
_IDEMPOTENT = _READS | {"PUT", "DELETE"}
_BUSY = frozenset({429, 503})
_NO_ACKNOWLEDGEMENT = frozenset({502, 504})
_FIRST_REDIRECT, _FIRST_ERROR = 300, 400


@dataclass(frozen=True, slots=True)
class Answer:
    """A good answer: its status, the decoded JSON (``None`` without a body) and the server's request id."""

    status: int
    body: Any
    request_id: str | None


class _Repeat(Exception):  # noqa: N818  # a signal, not an error
    """This attempt gave no final answer; ``error`` is what to raise when no further one is made."""

    def __init__(self, error: TidemillError, *, uncertain: bool, wait_seconds: float | None = None) -> None:
        super().__init__(error.detail)
        self.error = error
        self.uncertain = uncertain
        self.wait_seconds = wait_seconds


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    content: bytes | None
    query: Query | None
    token: SecretStr | None
    repeatable: bool
    headers: Mapping[str, str]


class ApiClient:
    """A connection to one Tidemill server. Use it as a context manager, or ``close()`` it.

    ``total_seconds`` bounds one call with all its repeats; ``until`` bounds all calls of one command together.
    ``transport`` replaces the network (of httpx); everything else here stays in place.
    """

    def __init__(
        self,
        server: str,
        token: SecretStr | str | None,
        *,
        clock: Clock,
        transport: httpx.BaseTransport | None = None,
        connect_seconds: float = limits.CONNECT_SECONDS,
        request_seconds: float = limits.REQUEST_SECONDS,
        total_seconds: float = limits.COMMAND_SECONDS,
        until: Deadline | None = None,
    ) -> None:
        self.server = check_server(server)
        self._token = as_secret(token)
        self.clock = clock
        self._connect_seconds = connect_seconds
        self._request_seconds = request_seconds
        self._total_seconds = total_seconds
        self._until = until
        self._http = _http_client(self.server, transport)

    def __repr__(self) -> str:
        return f"ApiClient({host_of(self.server)!r}, token={'[hidden]' if self._token else None})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Query | None = None,
        repeatable: bool = False,
        token: SecretStr | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request below ``/v1`` and return its good answer.

        ``repeatable`` says that the body carries a client-made id, so that a repeat is safe; GET, PUT and DELETE
        always are. ``token`` replaces the client's own; ``headers`` are sent beside ours. Raises the kernel error of the problem's code,
        ``OutcomeUnknown`` when a change was not acknowledged, ``Unavailable`` when a read was not.
        """
        content = None if body is None else _encoded(body)
        wanted = as_secret(token) if token is not None else self._token
        safe = repeatable or method in _IDEMPOTENT
        return self._repeated(_Request(method, path, content, query, wanted, safe, headers or {}))

    def pages(self, path: str, query: Query | None = None) -> Iterator[dict[str, Any]]:
        """Every item of a list route, page after page."""
        cursor: str | None = None
        while True:
            body = self.call("GET", path, query={**(query or {}), "cursor": cursor}).body
            items = body.get("items") if isinstance(body, dict) else None
            if not isinstance(items, list):
                raise AnswerUnusable(
                    f"{path}: the server at {host_of(self.server)} answered with something that is no list"
                )
            yield from items
            following = body.get("next_cursor")
            if not following:
                return
            if following == cursor:
                raise AnswerUnusable(f"{path}: the server gives the same page again and again")
            cursor = str(following)

    # --- repeating

    def _repeated(self, request: _Request) -> Answer:
        """All attempts of one request. Once one attempt was uncertain, only a real answer makes it certain again."""
        deadline, uncertain = Deadline(self.clock, self._total_seconds), False

        def attempt() -> Answer:
            nonlocal uncertain
            try:
                return self._attempt(request, deadline)
            except _Repeat as repeat:
                uncertain = uncertain or repeat.uncertain
                raise

        try:
            return self._retrying(request, deadline)(attempt)
        except _Repeat as repeat:
            raise _final(request, repeat.error, uncertain=uncertain) from None

    def _retrying(self, request: _Request, deadline: Deadline) -> tenacity.Retrying:
        growing = tenacity.wait_random_exponential(
            multiplier=limits.HTTP_WAIT_FIRST_SECONDS, max=limits.HTTP_WAIT_MAX_SECONDS
        )

        def wait(state: tenacity.RetryCallState) -> float:
            asked = _outcome(state).wait_seconds
            return growing(state) if asked is None else asked

        def stop(state: tenacity.RetryCallState) -> bool:
            over = state.attempt_number >= limits.HTTP_ATTEMPTS or wait(state) >= self._left(deadline)
            return over or not _may_repeat(request, _outcome(state))

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Repeat), wait=wait, stop=stop, sleep=self.clock.sleep, reraise=True
        )

    def _left(self, deadline: Deadline) -> float:
        left = deadline.left_seconds()
        return left if self._until is None else min(left, self._until.left_seconds())

    # --- one attempt

    def _attempt(self, request: _Request, deadline: Deadline) -> Answer:
        left = self._left(deadline)
        if left <= 0:
            raise _Repeat(
                Unavailable("the time for this command is over; give it more with --timeout"), uncertain=False
            )
        try:
            status, headers, content = self._exchange(request, left, deadline)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout):
            raise _Repeat(self._unreachable(), uncertain=False) from None
        except httpx.TransportError as problem:
            raise _Repeat(self._silent(type(problem).__name__), uncertain=True) from None
        return self._answer(request, status, headers, content)

    def _exchange(self, request: _Request, left: float, deadline: Deadline) -> tuple[int, httpx.Headers, bytes | None]:
        """Status, headers and body; the body is ``None`` when it is over the limit or compressed."""
        seconds = min(self._request_seconds, left)
        with self._http.stream(
            request.method,
            f"{self.server}/v1{request.path}",
            content=request.content,
            params=_parameters(request.query),
            headers=_headers(request),
            timeout=httpx.Timeout(seconds, connect=min(self._connect_seconds, left)),
        ) as response:
            return (
                response.status_code,
                response.headers,
                self._body(response, Deadline(self.clock, seconds), deadline),
            )

    def _body(self, response: httpx.Response, request_end: Deadline, deadline: Deadline) -> bytes | None:
        if response.headers.get("content-encoding", "identity") != "identity":
            return None
        content = bytearray()
        for chunk in response.iter_raw():
            content += chunk
            if len(content) > limits.RESPONSE_BODY_BYTES:
                return None
            if min(request_end.left_seconds(), self._left(deadline)) <= 0:
                raise httpx.ReadTimeout("the answer came too slowly")
        return bytes(content)

    def _answer(self, request: _Request, status: int, headers: httpx.Headers, content: bytes | None) -> Answer:
        request_id = headers.get("x-request-id")
        if status >= _FIRST_ERROR:
            raise self._refused(request, status, headers, content or b"")
        if status >= _FIRST_REDIRECT:
            raise AnswerUnusable(self._redirected(status, headers))
        if content is None:
            raise self._unusable(request, f"is compressed or larger than {limits.RESPONSE_BODY_BYTES >> 20} MB")
        if not content:
            return Answer(status, None, request_id)
        try:
            return Answer(status, json.loads(content), request_id)
        except (ValueError, RecursionError):
            raise self._unusable(request, "is not JSON; is --server the address of a Tidemill server?") from None

    def _refused(self, request: _Request, status: int, headers: httpx.Headers, content: bytes) -> Exception:
        secret = request.token.get_secret_value() if request.token else ""
        error = error_of(status, content, headers.get("x-request-id"), secret)
        if status in _NO_ACKNOWLEDGEMENT:
            return _Repeat(error, uncertain=True)
        if status in _BUSY:
            wait = retry_after_seconds(headers.get("retry-after"), self.clock.now())
            error.facts["retry_after_seconds"] = wait
            return _Repeat(error, uncertain=False, wait_seconds=wait)
        return error

    # --- texts

    def _unreachable(self) -> Unavailable:
        return Unavailable(
            f"no connection to {host_of(self.server)}; check that the server runs (`tidemill dev`) and that --server is right"
        )

    def _silent(self, kind: str) -> Unavailable:
        return Unavailable(f"{host_of(self.server)} did not answer ({kind}); repeat later")

    def _redirected(self, status: int, headers: httpx.Headers) -> str:
        wanted = host_of(str(httpx.URL(self.server).join(headers.get("location", "/"))))
        return (
            f"{host_of(self.server)} answered with a redirect ({status}) to {wanted}; a request with a token never "
            "follows one: give the final address with --server"
        )

    def _unusable(self, request: _Request, what: str) -> TidemillError:
        text = f"the answer of {host_of(self.server)} {what}"
        if request.method in _READS:
            return AnswerUnusable(text)
        return OutcomeUnknown(f"{text}, so it is not known what happened; look, or repeat with the same id")


def _http_client(server: str, transport: httpx.BaseTransport | None) -> httpx.Client:
    """Proxies of the environment serve https only: one between us and this machine would read the token."""
    return httpx.Client(
        transport=transport,
        follow_redirects=False,
        trust_env=not is_loopback(httpx.URL(server).host),
        headers={
            "accept": "application/json, application/problem+json",
            "accept-encoding": "identity",
            "user-agent": "tidemill",
        },
    )


def _encoded(body: object) -> bytes:
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    if len(content) > limits.REQUEST_BODY_BYTES:
        raise TooLarge(f"the request has {len(content)} bytes; at most {limits.REQUEST_BODY_BYTES} are accepted")
    return content


def _parameters(query: Query | None) -> dict[str, str]:
    """Query parameters as text; those that are ``None`` are left out."""
    known = {name: value for name, value in (query or {}).items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in known.items()}


def _headers(request: _Request) -> dict[str, str]:
    headers = dict(request.headers)
    if request.content is not None:
        headers["content-type"] = "application/json"
    if request.token is not None:
        headers["authorization"] = f"Bearer {request.token.get_secret_value()}"
    return headers


def _outcome(state: tenacity.RetryCallState) -> _Repeat:
    error = state.outcome.exception() if state.outcome is not None else None
    if not isinstance(error, _Repeat):
        raise TypeError("only an attempt without a final answer is asked for its wait")
    return error


def _may_repeat(request: _Request, repeat: _Repeat) -> bool:
    """A request that never left this machine may be sent again whatever it asks."""
    return request.repeatable or (not repeat.uncertain and "status" not in repeat.error.facts)


def _final(request: _Request, error: TidemillError, *, uncertain: bool) -> TidemillError:
    if request.method in _READS:
        return Unavailable(error.detail, facts=error.facts) if isinstance(error, OutcomeUnknown) else error
    if not uncertain:
        return error
    facts = {**error.facts, "repeatable": request.repeatable}
    return OutcomeUnknown(f"no acknowledgement: {error.detail}. It may or may not have happened", facts=facts)
