"""Children that misbehave, and stops that meet in one moment (scheduler.md 8.2, 8.4, 8.5, 10.1; F10, F12; BR-124, 125, 130, 136)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from chalicelib.kernel.errors import InvalidInputs, Unavailable
from chalicelib.leases.boots import BeatAnswer
from chalicelib.leases.machine import living_processes
from tests.unit.workers.doubles import processes_with
from tests.unit.workers.site import GATED, LONG, RUN, Site, ended, names, running, until

IGNORING = "import signal\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\n"
CANCEL = {RUN: "can_0123456789abcdef"}


def child_of(site: Site) -> int:
    (program,) = (pid for pid in processes_with(str(site.project)) if not _is_keeper(pid))
    return program


def _is_keeper(pid: int) -> bool:
    return b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()


# --- children


def test_a_child_that_forks_and_ignores_signals_is_ended_with_all_of_it(site: Site) -> None:
    forking = f"""
{IGNORING}
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        os.execv(sys.executable, [sys.executable, "-c", "import signal, time\\nsignal.signal(15, signal.SIG_IGN)\\n"
            "time.sleep(600)", {str(site.project)!r}])
"""
    worker = running(site, forking + LONG)
    until(lambda: len(processes_with(str(site.project))) >= 5)
    worker._boot._deliver(BeatAnswer(CANCEL))
    outcome = ended(site)
    assert (outcome.state, outcome.settled) == ("cancelled", False)
    assert processes_with(str(site.project)) == []


def test_exit_zero_after_sigterm_is_cancelled_and_settles_nothing(site: Site) -> None:
    """BR-130: the exit code after a cancel says nothing, and the warehouse may go on."""
    late = "import signal\nsignal.signal(2, signal.SIG_IGN)\nsignal.signal(15, lambda *_: sys.exit(0))\n"
    worker = running(site, late + LONG)
    worker._boot._deliver(BeatAnswer(CANCEL))
    outcome = ended(site)
    assert (outcome.state, outcome.settled, outcome.summary["exit_code"]) == ("cancelled", False, 0)


def test_a_child_that_is_killed_from_outside_is_told_as_killed(site: Site) -> None:
    running(site)
    os.kill(child_of(site), signal.SIGKILL)
    outcome = ended(site)
    assert (outcome.state, outcome.end_reason, outcome.settled) == ("failed", "killed", False)


def test_a_keeper_that_is_killed_from_outside_is_told_as_killed(site: Site) -> None:
    worker = running(site)
    os.kill(site.item(worker)["process_groups"][RUN]["pgid"], signal.SIGKILL)
    outcome = ended(site)
    assert (outcome.end_reason, outcome.settled) == ("killed", False)


def test_the_other_runs_of_a_worker_go_on_when_one_is_cancelled_and_fails(site: Site) -> None:
    """BR-125: three jobs, one is cancelled and raises."""
    site.program(
        "import signal, time\nsignal.signal(2, lambda *_: 1 / 0)\n"
        + GATED.replace("'go'", "os.environ['TIDEMILL_RUN_ID']")
    )
    runs = [site.publish(f"run_together_{number:013d}") for number in range(3)]
    worker = site.begin(slots=3)
    for inputs in runs:
        site.send(inputs)
    until(lambda: len(site.item(worker)["process_groups"]) == 3)
    until((site.project / "up").exists)
    worker._boot._deliver(BeatAnswer({runs[0].run_id: "can_0123456789abcdef"}))
    site.server.wait_for("terminal")
    for inputs in runs[1:]:
        (site.project / inputs.run_id).touch()
    states = {call.run_id: call.body.outcome.state for call in site.server.wait_for("terminal", 3)}
    assert states == {runs[0].run_id: "cancelled", runs[1].run_id: "succeeded", runs[2].run_id: "succeeded"}


def test_the_child_finds_neither_credentials_nor_their_addresses(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = {
        "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "secret", "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:9001",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/guid", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://x/guid",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": "secret", "ECS_CONTAINER_METADATA_URI_V4": "http://169.254.170.2/v4/x",
        "ECS_AGENT_URI": "http://169.254.170.2/api", "TIDEMILL_TOKEN_FILE": "/token", "_HANDLER": "x",
    }  # fmt: skip
    for name, value in hidden.items():
        monkeypatch.setenv(name, value)
    site.program("print('build', sorted(os.environ))")
    (site.project / "jobs.py").write_text(
        f"import os, pathlib\npathlib.Path({str(site.project / 'seen')!r}).write_text(str(sorted(os.environ)))\n"
        + (site.project / "jobs.py").read_text()
    )
    site.begin()
    site.send(site.publish())
    assert ended(site).state == "succeeded"
    (log,) = site.server.uploads.values()
    seen = log.decode() + (site.project / "seen").read_text()
    assert [name for name in hidden if repr(name) in seen] == []


# --- stops that meet


def test_a_cancel_between_accept_and_start_starts_nothing(site: Site) -> None:
    site.server.faults["verified"] = [Unavailable("away")] * 1_000
    worker = site.begin()
    site.send(site.publish())
    site.server.wait_for("verified")
    site.item(worker)["cancel"].update(CANCEL)
    assert ended(site).state == "cancelled"
    assert "start" not in names(site)


def test_a_cancel_between_start_and_child_settles_at_once(site: Site) -> None:
    """The group cannot be recorded, so the child waits; it is ended before it did anything."""
    site.program(f"(here / 'ran').touch()\n{LONG}")
    inputs = site.publish()
    begin = site.server.start

    def start(*arguments: object) -> None:
        begin(*arguments)  # type: ignore[arg-type]  # passed through
        site.cloud.table.failing.set()

    site.server.start = start  # type: ignore[assignment,method-assign]  # the moment of the fault
    worker = site.begin()
    site.send(inputs)
    until(
        lambda: (
            bool(processes_with(str(site.project / "program.py")) or processes_with("keeper.py"))
            and "start" in names(site)
        )
    )
    worker._boot._deliver(BeatAnswer(CANCEL))
    outcome = ended(site)
    assert (outcome.state, outcome.settled) == ("cancelled", True)
    assert not (site.project / "ran").exists()
    site.cloud.table.failing.clear()


def test_a_cancel_that_comes_twice_is_one(site: Site) -> None:
    worker = running(site)
    for _ in range(2):
        worker._boot._deliver(BeatAnswer(CANCEL))
    assert ended(site).state == "cancelled"
    assert names(site).count("terminal") == 1


@pytest.mark.parametrize("order", [("timeout", "cancel"), ("cancel", "timeout"), ("interrupt", "cancel")])
def test_a_cancel_wins_over_every_other_reason(site: Site, order: tuple[str, str]) -> None:
    """BR-136: the time limit passes while the cancel is on its way, and the reverse."""
    worker = running(site, IGNORING + LONG)
    (execution,) = worker._boot._carried()
    for intent in order:
        execution.request(intent)  # type: ignore[arg-type]  # parametrised
    assert ended(site).state == "cancelled"


def test_a_stop_after_the_child_ended_changes_no_outcome(site: Site) -> None:
    """F8: the worker is stopped between the end of the child and the report; what succeeded stays succeeded."""
    site.server.faults["log_uploads"] = [Unavailable("away")] * 1_000
    site.begin()
    site.send(site.publish())
    site.server.wait_for("log_uploads", 3)
    site.end()
    assert ended(site).state == "succeeded"


# --- secrets


def test_a_secret_of_the_target_reaches_the_child_and_no_log(site: Site) -> None:
    site.program("print('password', os.environ['PASSWORD']); sys.exit(os.environ['PASSWORD'] + ' was refused')")
    site.begin(resolve_secret={"db#password": "hunter2-hunter2"}.__getitem__)
    site.send(site.publish(environment={"PASSWORD": "secret:db#password"}))
    outcome = ended(site)
    assert outcome.message == "[hidden] was refused"
    (log,) = site.server.uploads.values()
    assert log.decode() == "password [hidden]\n[hidden] was refused\n"
    assert "hunter2" not in str(site.server.calls)


def test_a_compile_that_tells_a_secret_is_masked_too(site: Site) -> None:
    inputs = site.publish(environment={"PASSWORD": "secret:db"})
    (site.project / "jobs.py").write_text("import os\nraise RuntimeError('no login with ' + os.environ['PASSWORD'])")
    site.begin(resolve_secret=lambda _: "hunter2-hunter2")
    site.send(inputs)
    assert "no login with [hidden]" in str(ended(site).message)


def test_a_store_of_secrets_that_is_away_is_waited_for(site: Site) -> None:
    away = [Unavailable("away"), Unavailable("away")]

    def resolve(_: str) -> str:
        if away:
            raise away.pop()
        return "hunter2-hunter2"

    site.begin(resolve_secret=resolve)
    site.send(site.publish(environment={"PASSWORD": "secret:db"}))
    assert ended(site).state == "succeeded"


def test_a_secret_that_is_not_there_names_its_variable(site: Site) -> None:
    def resolve(reference: str) -> str:
        raise InvalidInputs(f"the secret {reference} cannot be read")

    site.begin(resolve_secret=resolve)
    site.send(site.publish(environment={"PASSWORD": "secret:db"}))
    outcome = ended(site)
    assert (outcome.end_reason, outcome.message) == (
        "inputs_invalid",
        "environment.PASSWORD: the secret db cannot be read",
    )


# --- a full disk


def test_a_run_folder_that_cannot_be_made_starts_nothing(site: Site) -> None:
    (site.state).mkdir()
    (site.state / "runs").write_text("a file in its place")
    site.begin()
    site.send(site.publish())
    outcome = ended(site)
    assert (outcome.state, outcome.end_reason, outcome.error_code) == (
        "launch_failed",
        "lost_before_start",
        "worker_failed",
    )
    assert "start" not in names(site)


def test_a_log_that_finds_the_disk_full_fails_no_run(site: Site) -> None:
    site.program(f"""
os.symlink("/dev/full", {str(site.state / "runs" / f"clm_{RUN}.log" / "0001.log")!r})
for number in range(100_000): print("line", number)
""")
    site.begin()
    site.send(site.publish())
    assert ended(site).state == "succeeded"


def test_no_process_of_ours_is_left(site: Site) -> None:
    before = {facts.pid for facts in living_processes() if facts.parent == os.getpid()}
    worker = running(site, IGNORING + LONG)
    worker._boot._deliver(BeatAnswer(CANCEL))
    ended(site)
    site.end()
    assert {facts.pid for facts in living_processes() if facts.parent == os.getpid()} <= before
