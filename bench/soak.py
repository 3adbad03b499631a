"""Minutes of mixed load on the local stack while its parts are killed: nothing may be lost, nothing doubled."""

from __future__ import annotations

import random
import secrets
import shutil
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from psycopg.rows import dict_row

from tests.simulation.answers import Answers
from tests.simulation.violations import Violation

from .burst import described
from .document import Document, Figure, say
from .filling import Connection
from .replay import Replay
from .soak_load import People
from .soak_project import make_project
from .soak_stack import SLOTS, SoakStack, wait_until_true
from .store import WORK

MINUTES = 30.0
SETTLE_SECONDS = 300.0
_KINDS = {"worker": 5, "child": 4, "postgres": 2, "api": 2}
_BETWEEN_SECONDS = (4.0, 14.0)
_SEED_BITS = 32


class SoakFailed(RuntimeError):  # noqa: N818 - named for what happened
    """A rule was broken, or the load did not settle; the text has the seed and where everything lies."""


def measure(minutes: float = MINUTES, seed: int | None = None) -> Document:
    """Load and kill for that long, let it settle, and hold the history against the simulator's checkers.

    The seed decides what is asked and killed in which order; not what a real machine makes of it. Raises
    ``SoakFailed``, and then leaves the folder for whoever looks into it.
    """
    seed = secrets.randbits(_SEED_BITS) if seed is None else seed
    say(f"seed {seed}")
    WORK.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="soak-", dir=WORK))
    try:
        figures = _soak(folder, minutes, random.Random(seed))  # noqa: S311 - to be repeated by its seed
    except (Violation, RuntimeError, AssertionError) as error:
        raise SoakFailed(f"seed {seed}: {error} (everything lies in {folder})") from error
    shutil.rmtree(folder, ignore_errors=True)
    return Document("soak", {"minutes": minutes, "seed": seed, **figures})


def _soak(folder: Path, minutes: float, chance: random.Random) -> dict[str, Figure]:
    project = make_project(folder)
    stack, answers = SoakStack(project), Answers()
    chances = [random.Random(chance.random()) for _ in range(2)]  # noqa: S311 - as above
    people = [People(project, own, answers, pause_seconds=2.0) for own in chances]
    try:
        stack.start()
        for person in people:
            person.start()
        _kill_until(stack, time.monotonic() + minutes * 60, chance)
        say("no more kills; waiting for everything to settle")
        for person in people:
            person.stop()
        people[0].switch_off()
        return {**_settled(stack, folder, answers), **_counted(stack, people)}
    finally:
        stack.stop()


def _kill_until(stack: SoakStack, until: float, chance: random.Random) -> None:
    half = time.monotonic() + (until - time.monotonic()) / 2
    while time.monotonic() < until:
        time.sleep(min(chance.uniform(*_BETWEEN_SECONDS), max(0.0, until - time.monotonic())))
        if time.monotonic() >= half and not stack.kills["moto"]:
            kind = "moto"
        else:
            (kind,) = chance.choices(list(_KINDS), list(_KINDS.values()))
        say(f"{datetime.now(UTC):%H:%M:%S} kill {kind}")
        stack.kill(kind)


def _settled(stack: SoakStack, folder: Path, answers: Answers) -> dict[str, Figure]:
    """Wait until nothing is open and nothing is held, then check the history."""
    url = psycopg.conninfo.make_conninfo(described(stack.dev)["database_url"], user="postgres")
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        began = time.monotonic()
        wait_until_true(lambda: not _open(connection), SETTLE_SECONDS, "every run to end")
        settled = round(time.monotonic() - began, 1)
        moments = Replay(connection, folder / "warehouse/log", answers, slots=SLOTS).check()
        counted = connection.execute(_COUNTED).fetchone() or {}
        return {"settled_after_seconds": settled, "moments_checked": moments, **counted}


def _open(connection: Connection) -> Sequence[object]:
    return connection.execute(_OPEN).fetchall()


def _counted(stack: SoakStack, people: Sequence[People]) -> dict[str, Figure]:
    done: dict[str, Figure] = {f"killed_{kind}": count for kind, count in sorted(stack.kills.items())}
    for name in sorted({name for person in people for name in person.done}):
        done[f"people_{name.replace(' ', '_')}"] = sum(person.done[name] for person in people)
    return done


_OPEN = b"""
SELECT run_id FROM runs WHERE finished_at IS NULL UNION ALL SELECT run_id FROM write_claims UNION ALL SELECT run_id FROM slots
"""
_COUNTED = b"""
SELECT count(*) AS runs, count(*) FILTER (WHERE origin = 'schedule') AS scheduled, count(*) FILTER (WHERE origin = 'retry') AS retries,
       count(*) FILTER (WHERE status = 'succeeded') AS succeeded, count(*) FILTER (WHERE status = 'failed') AS failed,
       count(*) FILTER (WHERE status = 'cancelled') AS cancelled, count(*) FILTER (WHERE status = 'launch_failed') AS launch_failed,
       count(*) FILTER (WHERE end_reason = 'lost') AS lost
FROM runs
"""
