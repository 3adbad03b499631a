"""Which addresses may receive a credential, and how paths are written."""

from __future__ import annotations

import ipaddress
from urllib.parse import quote, urlsplit

from ..kernel.errors import UsageError


def check_server(server: str) -> str:
    """The address without a slash at its end, when a credential may be sent there.

    That is https to anywhere and http to this machine only; no user info, query or fragment.
    Raises ``UsageError``, which does not repeat a password that stands in the address.
    """
    scheme, host = _checked(server, "server")
    if scheme == "http" and not is_loopback(host):
        raise UsageError.of_field("server", f"http to {host} would show the token to the network; use https")
    parts = urlsplit(server)
    if parts.query or parts.fragment:
        raise UsageError.of_field("server", "give the address without a query or a fragment")
    return server.rstrip("/")


def check_signed_link(link: str) -> str:
    """A presigned address as it is, under the same rule; the error never shows its signature."""
    scheme, host = _checked(link, "link")
    if scheme == "http" and not is_loopback(host):
        raise UsageError.of_field("link", f"the server gave an http link to {host}; it must be https")
    return link


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine: ``localhost`` or a loopback address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(address: str) -> str:
    """The host and port of an address, for texts: no user info, path or query."""
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an unreadable address"
    return f"{parts.hostname or 'no host'}{port}"


def path_of(*parts: str) -> str:
    """``/a/b`` with every part percent-encoded, so that a name with ``/`` stays one part."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def _checked(address: str, field: str) -> tuple[str, str]:
    """Scheme and host of a plain http or https address."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise UsageError.of_field(
            field, "is not an address; write it as https://host or http://127.0.0.1:PORT"
        ) from None
    if parts.scheme not in {"http", "https"} or not host or not address.isprintable() or " " in address:
        raise UsageError.of_field(field, "is not an address; write it as https://host or http://127.0.0.1:PORT")
    if "@" in parts.netloc:
        raise UsageError.of_field(
            field, "give the address without user name and password; tokens have their own option"
        )
    return parts.scheme, host
