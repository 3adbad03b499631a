"""The burst of other schedulers: their services in their own environment, over a Postgres like ours."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from chalicelib.local.pump import next_minute

from .burst_figures import figures_of, wait_until
from .document import Figure, Figures, say
from .peers import Peer, PeerUnavailable
from .process_tree import measured_tree
from .store import WORK, durable_store

# What may run at once in each of them, as far as it has such a limit: as many as our worker has slots would slow them.
PARALLEL = 16
PREPARE_SECONDS = 120
START_SECONDS = 240
PATIENCE_SECONDS: Mapping[int, int] = {50: 600, 200: 1_500}


def peer_figures(peer: Peer, counts: Sequence[int]) -> Figures:
    """Its figures for each size; ``unavailable`` says why there are none (more)."""
    figures: dict[str, Figure] = {"version": peer.version, "settings": SETTINGS[peer.name]}
    try:
        peer.install()
        for count in counts:
            say(f"{peer.name}: {count}")
            figures |= _burst(peer, count)
    except PeerUnavailable as reason:
        figures["unavailable"] = str(reason)
    return figures


SETTINGS: Mapping[str, str] = {
    "airflow": "LocalExecutor, Postgres, defaults (parallelism 32); scheduler, DAG processor, API server; BashOperator",
    "dagster": f"Postgres, daemon, in-process executor, max_concurrent_runs {PARALLEL}; an op that starts the program",
    "prefect": f"Postgres, server, process worker with limit {PARALLEL}; a flow that starts the program",
}


def _burst(peer: Peer, count: int) -> Figures:
    with (
        durable_store() as store,
        tempfile.TemporaryDirectory(prefix=f"{peer.name}-", dir=WORK, ignore_cleanup_errors=True) as folder,
    ):
        settings = {
            "count": count,
            "folder": str(Path(folder) / "home"),
            "url": store.empty_database("burst"),
            "port": _free_port(),
            "parallel": PARALLEL,
            "start_seconds": START_SECONDS,
            "patience_seconds": PATIENCE_SECONDS[count],
        }
        with _program(peer, Path(folder) / "program.log") as program:
            _say(program, settings)
            _hear(program, folder)
            due = _due(program, folder)
            wait_until(due - timedelta(seconds=2))
            with measured_tree(program.pid, _postgres()) as cost:
                latencies = _hear(program, folder)
        if len(latencies) < count:
            raise PeerUnavailable(f"{len(latencies)} of {count} runs finished in {PATIENCE_SECONDS[count]} s")
        return figures_of(count, latencies, cost)


def _due(program: subprocess.Popen[str], folder: str) -> datetime:
    """A minute for which everything is ready in time: a slow machine gets a later one."""
    due = next_minute(datetime.now(UTC) + timedelta(seconds=PREPARE_SECONDS))
    _say(program, due.isoformat())
    _hear(program, folder)
    return due


@contextmanager
def _program(peer: Peer, log: Path) -> Iterator[subprocess.Popen[str]]:
    with log.open("wb") as errors:
        program = subprocess.Popen(
            [peer.environment / "bin/python", peer.program_file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
    try:
        yield program
    finally:
        _end(program)


def _end(program: subprocess.Popen[str]) -> None:
    """It ends its services itself once it has told all; what fails before is ended here, with all that it started."""
    if program.stdin is not None:
        program.stdin.close()
    try:
        program.wait(60)
    except subprocess.TimeoutExpired:
        for process in [*psutil.Process(program.pid).children(recursive=True), psutil.Process(program.pid)]:
            process.kill()
        program.wait()
    if program.stdout is not None:
        program.stdout.close()


def _say(program: subprocess.Popen[str], what: object) -> None:
    if program.stdin is not None:
        program.stdin.write(json.dumps(what) + "\n")
        program.stdin.flush()


def _hear(program: subprocess.Popen[str], folder: str) -> Any:
    line = program.stdout.readline() if program.stdout is not None else ""
    if not line:
        lines = (Path(folder) / "program.log").read_text(encoding="utf-8").strip().splitlines() or ["it said nothing"]
        raise PeerUnavailable(lines[-1])
    return json.loads(line)


def _postgres() -> int:
    """The server that this process has started."""
    return next(child.pid for child in psutil.Process().children() if child.name() == "postgres")


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
