import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.cloud.aws import Aws
from chalicelib.cloud.provision import provision
from chalicelib.local.moto_server import MotoServer
from chalicelib.settings import read_settings


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another account may be let into; pytest's own are closed to others from the top."""
    with tempfile.TemporaryDirectory(prefix="tm-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def moto() -> Iterator[MotoServer]:
    server = MotoServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def aws(moto: MotoServer) -> Aws:
    """A provisioned installation whose received messages come back after a second."""
    installation = Aws(read_settings({"TIDEMILL_AWS_ENDPOINT": moto.endpoint()}))
    provision(installation, visibility_seconds=1)
    return installation
