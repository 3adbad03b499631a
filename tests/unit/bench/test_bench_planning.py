"""The comparison with peers, without their environments."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bench import peers
from bench.expressions import EXPRESSIONS
from bench.filling import FilledJob, target_of
from bench.peer_programs.stopwatch import measure
from bench.peers import Peer, PeerUnavailable
from bench.ticks import due_jobs
from chalicelib.cron import next_after
from chalicelib.schedules.plan import first_cursor, plan

MINUTE = timedelta(minutes=1)


def test_the_stopwatch_tells_where_every_case_ended() -> None:
    def begin(cron: str, zone: str, first: datetime) -> object:
        moments = iter(first + MINUTE * n for n in range(1, 100))
        return moments.__next__

    answer = measure(begin, [["* * * * *", "UTC"]] * 2, "2026-12-01T06:00:00+00:00", steps=4, repeats=2)  # type: ignore[arg-type]  # an iterator's step
    assert answer["last"] == [datetime(2026, 12, 1, 6, 5, tzinfo=UTC).timestamp()] * 2
    assert float(str(answer["microseconds_per_next"])) > 0


@pytest.mark.parametrize(("cron", "zone"), EXPRESSIONS)
def test_every_compared_expression_has_occurrences(cron: str, zone: str) -> None:
    assert next_after(cron, zone, datetime(2026, 1, 15, tzinfo=UTC)) is not None


def test_the_stopwatch_needs_the_standard_library_only() -> None:
    program = Path(peers.__file__).parent / "peer_programs"
    code = "import stopwatch, json; print(json.dumps(stopwatch.__name__))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(program)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == "stopwatch"


def test_a_peer_that_cannot_be_installed_says_why(tmp_path: Path) -> None:
    with pytest.raises(PeerUnavailable, match=r"no-such-folder"):
        Peer("ticks", "croniter", "with_croniter.py", (str(tmp_path / "no-such-folder"),), tmp_path).answer({})


def test_each_schedule_of_the_burst_owes_exactly_the_due_instant() -> None:
    due = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)  # the clocks of Berlin and London change at this instant
    jobs: list[FilledJob] = list(due_jobs(due, 48))
    assert len({job.name for job in jobs}) == 48
    assert len({(job.spec.cron, job.spec.timezone) for job in jobs}) == 24
    for job in jobs:
        owed = plan(job.spec, first_cursor(job.spec, job.since), due)
        assert owed is not None
        assert (owed.scheduled_for, owed.skipped) == (due, 0)


def test_a_target_holds_no_more_jobs_than_a_snapshot() -> None:
    assert [target_of(place) for place in (0, 999, 1_000)] == ["target0", "target0", "target1"]
