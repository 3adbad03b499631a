"""Documents to presigned addresses: no credential, no redirect, bounded in number and time."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import httpx
import tenacity

from ..kernel import limits
from ..kernel.clock import Clock
from ..kernel.errors import AnswerUnusable, Unavailable
from .address import check_signed_link, host_of, is_loopback

_REDIRECT = 300
_SERVER_ERROR = 500
_TOO_MANY = 429


def upload_all(
    links: Mapping[str, str],
    contents: Mapping[str, bytes],
    *,
    clock: Clock,
    seconds: float = limits.UPLOAD_SECONDS,
    attempts: int = limits.HTTP_ATTEMPTS,
) -> None:
    """PUT each document (by its SHA-256) to its presigned link, a few at once, each with so many attempts.

    A PUT of content under its own hash may be repeated, and is. Raises ``Unavailable`` when the store does not
    answer and ``AnswerUnusable`` when it refuses, both naming the document.
    """
    for link in links.values():
        check_signed_link(link)
    with _http_client(links, seconds) as http, ThreadPoolExecutor(limits.UPLOADS_AT_ONCE, "upload") as pool:
        futures = [
            pool.submit(_retrying(clock, attempts), _put, http, sha256, link, contents[sha256])
            for sha256, link in links.items()
        ]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _http_client(links: Mapping[str, str], seconds: float) -> httpx.Client:
    local = any(is_loopback(httpx.URL(link).host) for link in links.values())
    timeout = httpx.Timeout(seconds, connect=limits.CONNECT_SECONDS)
    return httpx.Client(
        timeout=timeout, trust_env=not local, follow_redirects=False, headers={"user-agent": "tidemill"}
    )


def _retrying(clock: Clock, attempts: int) -> tenacity.Retrying:
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Unavailable),
        stop=tenacity.stop_after_attempt(attempts),
        wait=tenacity.wait_random_exponential(limits.HTTP_WAIT_FIRST_SECONDS, limits.HTTP_WAIT_MAX_SECONDS),
        sleep=clock.sleep,
        reraise=True,
    )


def _put(http: httpx.Client, sha256: str, link: str, content: bytes) -> None:
    where = f"document {sha256[:12]} to {host_of(link)}"
    try:
        status = http.put(link, content=content).status_code
    except httpx.TransportError as problem:
        raise Unavailable(f"{where}: no answer ({type(problem).__name__}); publish again later") from None
    if status >= _SERVER_ERROR or status == _TOO_MANY:
        raise Unavailable(f"{where}: the store answered {status}; publish again later")
    if status >= _REDIRECT:
        raise AnswerUnusable(f"{where}: the store refused it with {status}; publish again for fresh links")
