"""Reading what a presigned link points at: no credential, no redirect, bounded."""

from __future__ import annotations

import httpx

from ..kernel import limits
from ..kernel.errors import AnswerUnusable, Unavailable
from .address import check_signed_link, host_of, is_loopback

_PARTIAL, _OK, _NOTHING_MORE = 206, 200, 416


def download(link: str, *, start: int = 0) -> bytes:
    """The bytes behind ``link`` from ``start`` on, at most ``RESPONSE_BODY_BYTES`` of them; empty at its end."""
    check_signed_link(link)
    timeout = httpx.Timeout(limits.REQUEST_SECONDS, connect=limits.CONNECT_SECONDS)
    headers = {"accept-encoding": "identity"} | ({"range": f"bytes={start}-"} if start else {})
    local = is_loopback(httpx.URL(link).host)
    try:
        with (
            httpx.Client(timeout=timeout, trust_env=not local, follow_redirects=False) as http,
            http.stream("GET", link, headers=headers) as response,
        ):
            return _content(response, link, start)
    except httpx.TransportError as problem:
        raise Unavailable(f"no answer from {host_of(link)} ({type(problem).__name__}); repeat later") from None


def _content(response: httpx.Response, link: str, start: int) -> bytes:
    if response.status_code == _NOTHING_MORE:
        return b""
    if response.status_code not in {_OK, _PARTIAL}:
        raise AnswerUnusable(
            f"{host_of(link)} answered {response.status_code}; its link may be over, repeat the command"
        )
    skipped = start if response.status_code == _OK else 0
    content = bytearray()
    for chunk in response.iter_raw():
        content += chunk
        if len(content) - skipped > limits.RESPONSE_BODY_BYTES:
            break
    return bytes(content[skipped : skipped + limits.RESPONSE_BODY_BYTES])
