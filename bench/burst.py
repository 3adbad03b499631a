"""50 and 200 jobs due in the same second on the whole local stack, each a program that does nothing, beside others."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg

from chalicelib.local.pump import next_minute
from tests.e2e.dev import Dev, running

from .burst_figures import figures_of, ratios, wait_until
from .burst_peers import peer_figures
from .document import Document, Figure, Figures, say
from .peers import peers_of
from .process_tree import measured_tree
from .store import WORK

COUNTS = (50, 200)
SLOTS = 64
PREPARE_SECONDS = 30
PATIENCE_SECONDS = 300
_LOOK_SECONDS = 0.1


def measure() -> Document:
    """Ours, then the peers, one after the other."""
    figures: dict[str, Figure] = {"program": "/bin/true", "slots": SLOTS, "aws_engine": "moto"}
    for count in COUNTS:
        figures |= burst(count)
    peers = {peer.name: peer_figures(peer, COUNTS) for peer in peers_of("burst")}
    return Document("burst", figures, peers, ratios(COUNTS, figures, peers))


def burst(count: int) -> Figures:
    """Start a stack with so many jobs that are due in one minute, and wait until all have run."""
    due = next_minute(datetime.now(UTC) + timedelta(seconds=PREPARE_SECONDS))
    with tempfile.TemporaryDirectory(prefix="burst-", dir=WORK, ignore_cleanup_errors=True) as folder:
        project = _project(Path(folder) / "project", count, due)
        with running(project, "--slots", str(SLOTS)) as dev:
            dev.published()
            url = described(dev)["database_url"]
            wait_until(due - timedelta(seconds=2))
            say(f"{count} jobs are due at {due:%H:%M}")
            with measured_tree(dev.process.pid) as cost:
                latencies = _latencies(url, count, due)
    return figures_of(count, latencies, cost)


def described(dev: Dev) -> Mapping[str, str]:
    """Where the parts of a stack are."""
    facts: Mapping[str, str] = json.loads((dev.folder / ".tidemill" / "dev.json").read_text(encoding="utf-8"))
    return facts


def _project(folder: Path, count: int, due: datetime) -> Path:
    folder.mkdir()
    (folder / "tidemill.toml").write_text(
        f'name = "burst"\nmodules = ["jobs"]\npython = "{sys.executable}"\n\n[targets.dev]\nsettle_seconds = 0\n',
        encoding="utf-8",
    )
    (folder / "jobs.py").write_text(_JOBS.format(count=count, minute=due.minute, hour=due.hour), encoding="utf-8")
    return folder


_JOBS = """
from tidemill import Command, Job, Schedule

jobs = [
    Job(
        key=f"job{{place:03}}",
        build=Command(argv=["/bin/true"]),
        writes=[f"db.main.table{{place:03}}"],
        schedule=Schedule(cron="{minute} {hour} * * *", timezone="UTC"),
        timeout=60,
    )
    for place in range({count})
]
"""


def _latencies(url: str, count: int, due: datetime) -> list[float]:
    """Seconds from due to finished of every run. ``RuntimeError`` when some do not finish, or not well."""
    until = due + timedelta(seconds=PATIENCE_SECONDS)
    with psycopg.connect(psycopg.conninfo.make_conninfo(url, user="postgres"), autocommit=True) as connection:
        while datetime.now(UTC) < until:
            rows = connection.execute(_FINISHED, [due]).fetchall()
            if len(rows) == count:
                break
            time.sleep(_LOOK_SECONDS)
        else:
            raise RuntimeError(f"{len(rows)} of {count} runs have finished in {PATIENCE_SECONDS} s")
    bad = [row for row in rows if row[0] != "succeeded"]
    if bad:
        raise RuntimeError(f"{len(bad)} runs did not succeed, such as {bad[0]}")
    return [float(row[1]) for row in rows]


_FINISHED = b"""
SELECT status, extract(epoch FROM finished_at - scheduled_for) FROM runs
WHERE scheduled_for = %s AND finished_at IS NOT NULL
"""
