from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli import main
from tests.postgres import application_url, database, owner_url, postgres, store, store_url
from tests.scripted_server import ScriptedServer, scripted_server

__all__ = ["application_url", "database", "owner_url", "postgres", "store", "store_url"]

PROGRAM = (sys.executable, "-c", "import sys; from tidemill.cli import main; sys.exit(main())")
TOKEN = "tmo_0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Ended:
    """How a command ended; ``document`` is the one JSON document on stdout."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class Cli:
    """Runs the command line in a folder of its own, in this process or in a new one."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capture = capture

    def run(self, *words: str) -> Ended:
        code = main(words)
        out, err = self._capture.readouterr()
        return Ended(code, out, err)

    def json(self, *words: str) -> Ended:
        return self.run(*words, "--json")

    def start(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *words], cwd=self.folder, stderr=subprocess.PIPE, text=True, env=self.environment(), **more
        )

    def environment(self) -> Mapping[str, str]:
        return {name: value for name, value in os.environ.items() if name != "TIDEMILL_TEST_POSTGRES"}

    def dev_stack(self, server: str, token: str = TOKEN) -> None:
        data = self.folder / ".tidemill"
        data.mkdir(mode=0o700)
        (data / "dev.json").write_text(json.dumps({"pid": 1, "server": server, "console": None}))
        (data / "operator-token").write_text(token + "\n")

    def project(self, text: str = "") -> None:
        (self.folder / "tidemill.toml").write_text(text or 'name = "cafe"\njobs = []\n[targets.dev]\n')


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    for name in ("TIDEMILL_SERVER", "TIDEMILL_TOKEN", "TIDEMILL_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


@pytest.fixture
def ready(cli: Cli, server: ScriptedServer) -> Cli:
    """In a project folder beside a running local stack."""
    cli.dev_stack(server.url)
    cli.project()
    return cli
