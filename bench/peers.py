"""The schedulers of others, each in a pinned environment of its own under ``.bench/``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .document import say
from .store import WORK

_HERE = Path(__file__).resolve().parent
_PROGRAMS = _HERE / "peer_programs"
_READY = "tidemill-bench-ready"
INSTALL_SECONDS = 600
PROGRAM_SECONDS = 300


class PeerUnavailable(RuntimeError):  # noqa: N818 - a finding, not an error
    """The peer could not be installed or did not run; the text says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer's name in the figures, its pinned requirements, and its file in ``peer_programs``."""

    benchmark: str
    name: str
    program: str
    requirements: Sequence[str]
    folder: Path = WORK

    @property
    def environment(self) -> Path:
        """The folder of its environment."""
        return self.folder / f"{self.benchmark}-{self.name}"

    @property
    def program_file(self) -> Path:
        """What its environment runs."""
        return _PROGRAMS / self.program

    @property
    def version(self) -> str:
        """The version of the peer itself."""
        return self.requirements[0].partition("==")[2]

    def answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Its program's answer. Raises ``PeerUnavailable``."""
        self.install()
        environment = {**os.environ, "AIRFLOW_HOME": str(self.folder / "airflow-home")}
        command = [self.environment / "bin/python", self.program_file]
        out = _run(command, PROGRAM_SECONDS, environment, json.dumps(question))
        answer: Mapping[str, Any] = json.loads(out.splitlines()[-1])
        return answer

    def install(self) -> None:
        """Make its environment, once. Raises ``PeerUnavailable``."""
        ready = self.environment / _READY
        wanted = "\n".join(self.requirements)
        if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
            return
        say(f"installing {self.requirements[0]}")
        environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
        uv = _uv()
        _run(
            [uv, "venv", "--quiet", "--no-project", "--clear", "--python", sys.executable, self.environment],
            INSTALL_SECONDS,
            environment,
        )
        python = self.environment / "bin/python"
        _run([uv, "pip", "install", "--quiet", "--python", python, *self.requirements], INSTALL_SECONDS, environment)
        ready.write_text(wanted, encoding="utf-8")


def peers_of(benchmark: str) -> Iterator[Peer]:
    """Those of ``peers.toml`` that this benchmark measures."""
    for entry in tomllib.loads((_HERE / "peers.toml").read_text(encoding="utf-8"))[benchmark]:
        yield Peer(benchmark, entry["name"], entry["program"], tuple(entry["requirements"]))


def _uv() -> Path:
    """The one that stands beside our Python."""
    return Path(sys.executable).parent / "uv"


def _run(
    command: Sequence[str | Path], seconds: float, environment: Mapping[str, str], given: str | None = None
) -> str:
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=seconds, env=environment, check=True
        )
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "").strip().splitlines() or [f"exit code {error.returncode}"]
        raise PeerUnavailable(lines[-1].strip()) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(f"{Path(command[0]).name}: {type(error).__name__}") from error
    return done.stdout
