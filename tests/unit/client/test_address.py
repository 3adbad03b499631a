from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.client.address import check_server, check_signed_link, host_of, path_of
from chalicelib.kernel.errors import UsageError

GOOD = [
    "https://api.example.com",
    "https://api.example.com/prod/",
    "http://127.0.0.1:8000",
    "http://localhost:8000/",
    "http://[::1]:8000",
    "http://127.8.9.1",
]
BAD = [
    "http://api.example.com",
    "http://10.0.0.1:8000",
    "http://127.0.0.1.example.com",
    "http://localhost.example.com",
    "http://0.0.0.0:8000",
    "http://api.example.com@127.0.0.1:8000",
    "https://me:secret-word@api.example.com",
    "https://api.example.com?next=http://x",
    "https://api.example.com#x",
    "ftp://127.0.0.1",
    "file:///etc/passwd",
    "api.example.com",
    "https://",
    "http://127.0.0.1:99999",
    "http://[::1",
    "https://exa mple.com",
    "https://example.com\r\nx: y",
    "",
]


@pytest.mark.parametrize("server", GOOD)
def test_https_anywhere_and_http_to_this_machine_may_get_a_token(server: str) -> None:
    assert check_server(server) == server.rstrip("/")


@pytest.mark.parametrize("server", BAD)
def test_any_other_address_is_refused_before_a_token_is_sent(server: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_server(server)
    assert refused.value.fields[0].field == "server"
    assert "secret-word" not in str(refused.value)


def test_a_signed_link_may_have_a_query_but_not_plain_http_to_elsewhere() -> None:
    link = "http://127.0.0.1:1/bucket/key?X-Amz-Signature=abc"
    assert check_signed_link(link) == link
    with pytest.raises(UsageError) as refused:
        check_signed_link("http://objects.example.com/key?X-Amz-Signature=abc")
    assert "abc" not in str(refused.value)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_a_part_of_a_path_stays_one_part(parts: list[str]) -> None:
    encodable = [part.encode("utf-8", "ignore").decode() or "x" for part in parts]
    assert [unquote(part) for part in path_of(*encodable).split("/")[1:]] == encodable


def test_a_trigger_name_is_one_part() -> None:
    assert path_of("triggers", "orders/schedule", "ticks") == "/triggers/orders%2Fschedule/ticks"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://u:p@h.example:44/x?y=1", "h.example:44"),
        ("nothing", "no host"),
        ("http://h:x", "an unreadable address"),
    ],
)
def test_texts_show_host_and_port_only(address: str, shown: str) -> None:
    assert host_of(address) == shown
