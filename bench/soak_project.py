"""The project of the soak: jobs that share relations, and a program that proves who writes which relation when.

The program holds a lock file for each relation while it writes. The lock ends with the process, so that one that cannot
be had means two writers at one moment. What it does goes to ``warehouse/log``, one JSON object a line.
"""

from __future__ import annotations

import sys
from pathlib import Path

LOCATION, TARGET, WAREHOUSE = "soak", "dev", "soak-warehouse"
SETTLE_SECONDS = 2
JOBS, POOL, WEIGHT = 12, "default", 2

_TOML = """
name = "{location}"
modules = ["jobs"]
python = "{python}"

[targets.{target}]
warehouse = "{warehouse}"
settle_seconds = {settle}
"""

_JOBS = """
import sys

from tidemill import Command, Job, Pool, Retry, Schedule


def job(place):
    relations = [f"db.main.r{{place % 5}}", f"db.main.s{{place % 3}}"]
    schedules = [Schedule(cron="* * * * *", timezone="UTC", name=name) for name in "ab"]
    return Job(
        key=f"job{{place:02}}",
        build=Command(argv=[sys.executable, "-I", "-S", "{program}", "{folder}", *relations]),
        writes=relations,
        schedule=schedules if place % 2 else [],
        concurrency=1 + place % 2,
        pools=[Pool(name="{pool}", weight={weight})] if place % 3 == 0 else [],
        retries=Retry(max=2, backoff=1, max_backoff=4, on=["launch_failed", "lost", "failed"]),
        timeout=30,
    )


jobs = [job(place) for place in range({jobs})]
"""

_PROGRAM = """
import contextlib
import fcntl
import json
import os
import random
import signal
import sys
import time

folder, *relations = sys.argv[1:]
run_id, claim_id = os.environ["TIDEMILL_RUN_ID"], os.environ["TIDEMILL_CLAIM_ID"]
chance = random.Random(run_id)


def tell(what):
    line = json.dumps({"at": time.time(), "what": what, "run_id": run_id, "claim_id": claim_id, "relations": relations})
    log = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, line.encode() + b"\\n")
    os.close(log)


held = []
for relation in sorted(relations):
    lock = os.open(os.path.join(folder, relation), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        tell("clash")
        sys.exit(3)
    held.append(lock)
tell("begin")
if chance.random() < 0.1:
    signal.signal(signal.SIGINT, lambda *_: None)  # a program that does not listen
with contextlib.suppress(KeyboardInterrupt):
    time.sleep(chance.choice((0.0, 0.1, 0.5, 2.0, 6.0)))
tell("end")
sys.exit(1 if chance.random() < 0.15 else 0)
"""


def make_project(folder: Path) -> Path:
    """Write the project below ``folder``; returns its own folder."""
    project, warehouse = folder / "project", folder / "warehouse"
    project.mkdir(parents=True)
    warehouse.mkdir()
    program = folder / "write.py"
    program.write_text(_PROGRAM, encoding="utf-8")
    toml = _TOML.format(
        location=LOCATION, python=sys.executable, target=TARGET, warehouse=WAREHOUSE, settle=SETTLE_SECONDS
    )
    (project / "tidemill.toml").write_text(toml, encoding="utf-8")
    jobs = _JOBS.format(program=program, folder=warehouse, pool=POOL, weight=WEIGHT, jobs=JOBS)
    (project / "jobs.py").write_text(jobs, encoding="utf-8")
    return project
