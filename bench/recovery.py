"""SIGKILL for a worker and its child in mid run, on one host: until marked, proved ended, ended, and retried."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.rows import dict_row

from tests.e2e.dev import TIDEMILL, Dev, running, wait_for

from .burst import described
from .document import Document, Figures, rounded, say
from .filling import Connection
from .process_tree import tree
from .store import WORK

PATIENCE_SECONDS = 240
_LOOK_SECONDS = 0.1
_SETTINGS = (
    "lease, beat and passes by default; retry on lost without a wait; a single-writer target, whose settle time is 0"
)


def measure() -> Document:
    """The worker of ``tidemill dev``, which is supervised; one by hand in its folder; and one that nobody can see."""
    WORK.mkdir(exist_ok=True)
    figures: dict[str, Any] = {"settings": _SETTINGS}
    for name, scene in {"": _supervised, "alone_": _alone, "unseen_": _unseen}.items():
        with tempfile.TemporaryDirectory(prefix="recovery-", dir=WORK, ignore_cleanup_errors=True) as folder:
            figures |= {f"{name}{figure}": value for figure, value in scene(_project(Path(folder) / "project")).items()}
    return Document("recovery", figures)


def _project(folder: Path) -> Path:
    folder.mkdir()
    toml = (
        f'name = "recovery"\nmodules = ["jobs"]\npython = "{sys.executable}"\n\n[targets.dev]\nsingle_writer = true\n'
    )
    (folder / "tidemill.toml").write_text(toml, encoding="utf-8")
    (folder / "jobs.py").write_text(_JOBS, encoding="utf-8")
    return folder


_JOBS = """
from tidemill import Command, Job, Retry

job = Job(
    key="long",
    build=Command(argv=["/bin/sleep", "300"]),
    writes=["db.main.long"],
    retries=Retry(max=1, on=["lost"], backoff=0),
)
"""


def _supervised(project: Path) -> Figures:
    say("the worker of tidemill dev")
    with running(project) as dev:
        dev.published()
        return _kill(dev, _running_run(dev), dev.worker().pid)


def _alone(project: Path) -> Figures:
    """Two workers by hand; the second is there for the retry, and has no part in proving the end of the first."""
    say("a worker that nobody watches")
    with running(project, "--no-worker", "--slots", "2") as dev, ExitStack() as workers:
        dev.published()
        first = workers.enter_context(_worker(dev, project / ".tidemill"))
        run_id = _running_run(dev)
        workers.enter_context(_worker(dev, project / "second"))
        return _kill(dev, run_id, first)


def _unseen(project: Path) -> Figures:
    """A worker by hand whose folder nobody looks into: its silence marks the run, and its successor there proves its end."""
    say("a worker that nobody sees")
    with running(project, "--no-worker", "--slots", "2") as dev, ExitStack() as workers:
        dev.published()
        first = workers.enter_context(_worker(dev, project / "first"))
        run_id = _running_run(dev)
        return _kill(dev, run_id, first, lambda: workers.enter_context(_worker(dev, project / "first")))


@contextmanager
def _worker(dev: Dev, state: Path) -> Iterator[int]:
    """``tidemill worker run`` as a person starts it; its process id."""
    facts = described(dev)
    environment = {
        **os.environ,
        "TIDEMILL_API_URL": facts["server"],
        "TIDEMILL_AWS_ENDPOINT": facts["aws_endpoint"],
        "TIDEMILL_TOKEN_FILE": str(dev.folder / ".tidemill/tokens/recovery"),
    }
    command = [*TIDEMILL, "worker", "run", "--state", str(state)]
    process = subprocess.Popen(
        command, cwd=dev.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process.pid
    finally:
        for victim in tree(process.pid):
            with suppress(psutil.Error):
                victim.kill()
        process.wait()


def _running_run(dev: Dev) -> str:
    """A run whose program works."""
    run_id = dev.request("long")
    dev.wait_state(run_id, "running")
    return run_id


def _kill(dev: Dev, run_id: str, worker: int, once_marked: Callable[[], object] | None = None) -> Figures:
    """Kill the worker, its child and what watched over the child; look at what becomes of the run."""
    wait_for(lambda: "sleep" in [process.name() for process in tree(worker)], 30, "the program to work")
    victims, killed_at = tree(worker), datetime.now(UTC)
    for victim in victims:
        with suppress(psutil.Error):
            victim.kill()
    url = psycopg.conninfo.make_conninfo(described(dev)["database_url"], user="postgres")
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        if once_marked is not None:
            _wait(connection, run_id, "marked_seconds")
            once_marked()
        row = _wait(connection, run_id, "retry_started_seconds")
    return {name: None if at is None else rounded((at - killed_at).total_seconds()) for name, at in row.items()}


def _wait(connection: Connection, run_id: str, figure: str) -> Mapping[str, Any]:
    """What is known of the run, once ``figure`` is. ``RuntimeError`` when it does not come."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        row = connection.execute(_MEASURED, [run_id]).fetchone()
        if row is not None and row[figure] is not None:
            return row
        time.sleep(_LOOK_SECONDS)
    raise RuntimeError(f"{run_id}: there were no {figure} in {PATIENCE_SECONDS} s")


_MEASURED = b"""
SELECT (SELECT min(e.occurred_at) FROM run_events e WHERE e.run_id = r.run_id AND e.kind = 'heartbeat_lost') AS marked_seconds,
       c.process_ended_at AS proved_seconds, r.finished_at AS ended_seconds, n.created_at AS retry_queued_seconds,
       n.started_at AS retry_started_seconds
FROM runs r JOIN claims c ON c.run_id = r.run_id LEFT JOIN runs n ON n.retry_of = r.run_id
WHERE r.run_id = %s
"""
