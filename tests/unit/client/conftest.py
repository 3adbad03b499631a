from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.client.api import ApiClient
from tests.doubles import HandClock
from tests.scripted_server import ScriptedServer, scripted_server

TOKEN = "tmo_0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def api(server: ScriptedServer, clock: HandClock) -> Iterator[ApiClient]:
    with ApiClient(server.url, TOKEN, clock=clock) as client:
        yield client
