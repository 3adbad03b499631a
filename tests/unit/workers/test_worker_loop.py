"""A whole worker on in-memory ports, with real children (scheduler.md 8.1, 7.4; BR-046, 050, 052, 064, 071)."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest

from chalicelib.kernel.errors import (
    ClaimEnded,
    ClaimTaken,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    RunCancelled,
    TidemillError,
    TokenExpired,
    Unavailable,
)
from chalicelib.leases.machine import living_processes
from chalicelib.workers.pace import Pace
from chalicelib.workers.records import boot_records
from tests.unit.workers.doubles import descriptors
from tests.unit.workers.site import GATED, LONG, PACE, RUN, Site, names, running, until


def test_a_run_from_message_to_settled_end(site: Site) -> None:
    site.program("print('hello'); print('TOKEN' in str(os.environ), os.environ['TIDEMILL_RUN_ID'])")
    inputs = site.publish()
    worker = site.begin()
    site.send(inputs)
    report = site.server.terminal()
    assert report.outcome is not None
    assert (report.outcome.state, report.outcome.settled) == ("succeeded", True)
    site.wait_deleted()
    assert site.end() == 0
    assert names(site) == ["accept", "inputs", "verified", "start", "log_uploads", "upload", "terminal"]
    assert site.server.uploads == {f"https://objects/{RUN}/0001.log": f"hello\nFalse {RUN}\n".encode()}
    assert {call.token for call in site.server.named("inputs", "verified", "start", "terminal")} == {"tmw_1"}
    assert site.server.named("accept")[0].body.boot_id == worker.boot_id
    assert site.cloud.table.items == {}
    assert boot_records(site.state) == []
    assert list((site.state / "runs").iterdir()) == []


@pytest.mark.parametrize(("code", "state"), [(9, "succeeded"), (4, "failed")])
def test_the_exit_code_decides(site: Site, code: int, state: str) -> None:
    site.program(f"print('why', flush=True); sys.exit({code})")
    site.begin()
    site.send(site.publish())
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert outcome.state == state
    if state == "failed":
        assert (outcome.end_reason, outcome.error_code, outcome.message) == ("tool_failed", "exit_4", "why")


def test_the_group_is_recorded_before_anything_runs_and_forgotten_after(site: Site) -> None:
    site.program(f"""
import json, time
folder = pathlib.Path({str(site.state)!r}) / "boots"
record = json.loads(next(folder.glob("*.json")).read_text())
print(record["groups"][os.environ["TIDEMILL_RUN_ID"]]["pgid"] == os.getpgid(0), flush=True)
while not (here / "go").exists():
    time.sleep(0.02)
""")
    worker = site.begin()
    site.send(site.publish())
    until(lambda: bool(site.item(worker)["process_groups"].get(RUN)))
    assert set(site.item(worker)["process_groups"][RUN]) == {"pgid", "started"}
    (site.project / "go").touch()
    site.server.terminal()
    assert site.server.uploads[f"https://objects/{RUN}/0001.log"] == b"True\n"
    assert site.item(worker)["process_groups"] == {}


@pytest.mark.parametrize("refusal", [ClaimTaken("x"), ClaimEnded("x"), RunCancelled("x")])
def test_a_refused_claim_drops_the_message_and_nothing_else(site: Site, refusal: TidemillError) -> None:
    site.server.faults["accept"] = [refusal]
    site.begin()
    site.send(site.publish())
    site.wait_deleted()
    site.end()
    assert names(site) == ["accept"]
    assert site.codes == [0]


def test_a_run_of_another_location_is_left_alone(site: Site) -> None:
    site.server.faults["accept"] = [NotFound("no such run")]
    site.begin()
    inputs = site.publish()
    site.send(inputs)
    assert site.wait_hidden() == ("receipt-1", 7)
    assert site.cloud.queue.deleted == []
    # Shown again, another try may succeed.
    site.send(inputs)
    assert site.server.terminal().outcome is not None


def test_one_claim_delivered_twice_runs_once(site: Site) -> None:
    """BR-046: the same id twice, at once, with slots for both."""
    inputs = site.publish()
    site.send(inputs)
    site.send(inputs)
    site.begin(slots=2)
    site.server.terminal()
    site.wait_deleted(2)
    site.send(inputs)
    site.wait_deleted(3)
    site.end()
    assert names(site).count("start") == 1
    assert names(site).count("terminal") == 1


def test_a_failing_delete_changes_nothing(site: Site) -> None:
    """BR-050: the handle is over; redelivery after success is dropped."""
    site.cloud.queue.deleting_fails = True
    inputs = site.publish()
    site.send(inputs)
    site.begin()
    site.server.terminal()
    site.cloud.queue.deleting_fails = False
    site.send(inputs)
    site.wait_deleted()
    site.end()
    assert names(site).count("terminal") == 1


def test_an_unreadable_message_is_left_for_the_dead_letter_queue(site: Site) -> None:
    site.cloud.queue.send("run-container", "{")
    site.cloud.queue.send("run-container", json.dumps({"v": 2, "run_id": "r", "claim_id": "c"}))
    inputs = site.publish()
    site.send(inputs)
    site.begin()
    site.server.terminal()
    site.wait_deleted()
    assert site.cloud.queue.deleted == ["receipt-3"]


def test_lost_replies_are_asked_for_again_with_the_same_key_and_content(site: Site) -> None:
    lost: list[TidemillError | None] = [OutcomeUnknown("lost"), Unavailable("away")]
    site.server.faults = {name: list(lost) for name in ("accept", "inputs", "verified", "start", "terminal")}
    site.begin()
    site.send(site.publish())
    site.server.wait_for("terminal", 3)
    site.end()
    for name in ("accept", "inputs", "verified", "start", "terminal"):
        calls = site.server.named(name)
        assert len(calls) == 3
        assert len({repr(call.body) for call in calls}) == 1
    assert site.cloud.queue.hidden[0] == ("receipt-1", 120)


def test_an_expired_token_is_renewed_by_accepting_again(site: Site) -> None:
    site.server.faults["terminal"] = [TokenExpired("over")]
    site.begin()
    site.send(site.publish())
    site.server.wait_for("terminal", 2)
    accepted = site.server.named("accept")
    assert len(accepted) == 2
    assert accepted[0].body == accepted[1].body
    assert site.server.named("terminal")[0].token != site.server.named("terminal")[1].token


def test_drift_is_refused_before_anything_starts(site: Site) -> None:
    inputs = site.publish()
    site.declare(timeout=61)
    (site.project / "jobs.py").write_text((site.project / "jobs.py").read_text().replace("[0, 9]", "[0]"))
    site.begin()
    site.send(inputs)
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert (outcome.state, outcome.end_reason) == ("launch_failed", "drift")
    assert "command:tool (changed)" in str(outcome.message)
    assert "start" not in names(site)


@pytest.mark.parametrize("what", ["broken", "missing"])
def test_a_project_that_does_not_compile_is_drift(site: Site, what: str) -> None:
    inputs = site.publish()
    if what == "broken":
        (site.project / "jobs.py").write_text("raise RuntimeError('half an edit')")
    else:
        site.project.rename(site.project.with_name("moved"))
    site.begin()
    site.send(inputs)
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert (outcome.state, outcome.end_reason) == ("launch_failed", "drift")
    assert ("half an edit" in str(outcome.message)) == (what == "broken")
    assert "start" not in names(site)


def test_inputs_with_another_hash_are_refused(site: Site) -> None:
    site.begin()
    site.send(site.publish(inputs_hash="f" * 64))
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert (outcome.state, outcome.end_reason) == ("launch_failed", "inputs_invalid")


def test_a_secret_that_cannot_be_read_is_refused(site: Site) -> None:
    site.begin()
    site.send(site.publish(environment={"PASSWORD": "secret:db"}))
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert outcome.end_reason == "inputs_invalid"
    assert "PASSWORD" in str(outcome.message)


def test_a_start_that_is_refused_as_cancelled_is_reported_cancelled(site: Site) -> None:
    site.server.faults["start"] = [RunCancelled("cancelled")]
    site.begin()
    site.send(site.publish())
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert outcome.state == "cancelled"


def test_a_start_after_its_deadline_writes_nothing(site: Site) -> None:
    """BR-071: the start time-out revoked the claim; the late worker does nothing."""
    marker = site.project / "ran"
    site.program(f"pathlib.Path({str(marker)!r}).touch()")
    site.server.faults["start"] = [ClaimEnded("start_timeout")]
    site.begin()
    site.send(site.publish())
    site.server.wait_for("start")
    site.end()
    assert "terminal" not in names(site)
    assert not marker.exists()
    assert boot_records(site.state) == []


def test_a_cancel_signal_interrupts_and_the_end_is_settled(site: Site) -> None:
    worker = running(site)
    site.item(worker)["cancel"][RUN] = "can_0123456789abcdef"
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert (outcome.state, outcome.settled) == ("cancelled", True)
    until(lambda: RUN not in site.item(worker)["cancel"])


def test_a_child_that_ignores_the_cancel_is_killed_and_does_not_settle(site: Site) -> None:
    ignoring = "import signal\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\n" + LONG
    worker = running(site, ignoring)
    site.item(worker)["cancel"][RUN] = "can_0123456789abcdef"
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert (outcome.state, outcome.settled, outcome.summary["signal"]) == ("cancelled", False, 9)


def test_exit_zero_after_a_cancel_is_still_cancelled(site: Site) -> None:
    polite = "import signal\nsignal.signal(2, lambda *_: sys.exit(0))\n" + LONG
    worker = running(site, polite)
    site.item(worker)["cancel"][RUN] = "can_0123456789abcdef"
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert (outcome.state, outcome.summary["exit_code"]) == ("cancelled", 0)


def test_the_time_limit_ends_a_run(site: Site) -> None:
    site.declare(timeout=1)
    running(site)
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert (outcome.state, outcome.end_reason, outcome.settled) == ("failed", "timed_out", True)


def test_a_revoked_claim_stops_its_child(site: Site) -> None:
    worker = running(site)
    site.server.faults["terminal"] = [ClaimEnded("over")]
    site.item(worker)["revoked"][f"clm_{RUN}"] = True
    site.server.wait_for("terminal")
    site.end()
    assert site.codes == [0]


def test_a_lost_lease_stops_every_child_and_the_worker(site: Site) -> None:
    running(site)
    site.cloud.table.items.clear()
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert (outcome.state, outcome.end_reason) == ("failed", "interrupted")
    until(lambda: bool(site.codes))
    assert site.codes == [1]


def test_dynamodb_and_the_api_away_stop_nothing(site: Site) -> None:
    """S40: only what is said counts, silence does not."""
    site.program(GATED)
    worker = site.begin()
    site.send(site.publish())
    until((site.project / "up").exists)
    site.cloud.table.failing.set()
    site.server.faults["terminal"] = [Unavailable("away")] * 2
    counter = site.item(worker)["counter"]
    time.sleep(1.5)  # longer than a beat: nothing to wait for, since nothing may happen
    assert "terminal" not in names(site)
    site.cloud.table.failing.clear()
    until(lambda: site.item(worker)["counter"] > counter)
    (site.project / "go").touch()
    outcome = site.server.wait_for("terminal", 3)[-1].body.outcome
    assert outcome.state == "succeeded"


def test_beats_go_on_while_runs_are_busy(site: Site) -> None:
    """BR-065: a CPU-bound child and a blocked report do not stop the counter."""
    worker = running(site, LONG.replace("time.sleep(120)", "while True: pass"))
    counter = site.item(worker)["counter"]
    until(lambda: site.item(worker)["counter"] >= counter + 2)


def test_stopping_lets_a_short_run_finish(site: Site) -> None:
    site.program(GATED)
    site.begin(pace=Pace(PACE.graces, 30, 0, 0.05))
    inputs = site.publish()
    site.send(inputs)
    until((site.project / "up").exists)
    site.stop.set()
    site.send(site.publish("run_after_the_stop_000"))
    (site.project / "go").touch()
    assert site.end() == 0
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert outcome.state == "succeeded"
    assert [call.run_id for call in site.server.named("accept")] == [RUN]


def test_stopping_interrupts_a_long_run(site: Site) -> None:
    running(site)
    assert site.end() == 0
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert (outcome.state, outcome.end_reason, outcome.settled) == ("failed", "interrupted", True)


def test_stopping_before_the_start_is_lost_before_start(site: Site) -> None:
    site.server.faults["inputs"] = [Unavailable("away")] * 1_000
    site.begin()
    site.send(site.publish())
    site.server.wait_for("inputs", 2)
    site.end()
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert (outcome.state, outcome.end_reason) == ("launch_failed", "lost_before_start")


def test_a_start_whose_answer_never_came_ends_as_interrupted(site: Site) -> None:
    site.server.faults["start"] = [OutcomeUnknown("lost")] * 1_000
    site.server.faults["terminal"] = [InvalidRequest("a running run cannot end launch_failed")]
    site.begin()
    site.send(site.publish())
    site.server.wait_for("start", 2)
    site.end()
    first, second = (call.body for call in site.server.named("terminal"))
    assert first.report_key != second.report_key
    assert (second.outcome.state, second.outcome.end_reason) == ("failed", "interrupted")


def test_a_report_that_is_never_answered_leaves_the_boot_to_be_proved(site: Site) -> None:
    site.server.faults["terminal"] = [Unavailable("away")] * 1_000
    pace = Pace(PACE.graces, 0.1, 0, 0.05, 7, last_call_seconds=0.3)
    worker = site.begin(pace=pace)
    site.send(site.publish())
    site.server.wait_for("terminal")
    site.end()
    assert [record.boot_id for record in boot_records(site.state)] == [worker.boot_id]


def test_an_accept_that_was_never_answered_leaves_the_boot_to_be_proved(site: Site) -> None:
    """BR-052: whether the claim is ours is unknown, so the end of the boot is what settles it."""
    site.server.faults["accept"] = [OutcomeUnknown("lost")] * 1_000
    worker = site.begin()
    site.send(site.publish())
    site.server.wait_for("accept", 2)
    site.end()
    assert site.cloud.queue.hidden[-1] == ("receipt-1", 0)
    assert [record.boot_id for record in boot_records(site.state)] == [worker.boot_id]


def test_a_store_that_is_down_fails_no_run(site: Site) -> None:
    site.server.faults["upload"] = [Unavailable("S3 is away")]
    site.begin()
    site.send(site.publish())
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert outcome.state == "succeeded"


def test_a_killed_child_is_told_as_killed(site: Site) -> None:
    site.program("import signal; os.kill(os.getpid(), signal.SIGKILL)")
    site.begin()
    site.send(site.publish())
    outcome = site.server.terminal().outcome
    assert outcome is not None
    assert (outcome.end_reason, outcome.error_code, outcome.settled) == ("killed", "signal_9", False)


def test_slots_bound_what_runs_at_once(site: Site) -> None:
    site.program(GATED)
    first = site.publish()
    second = site.publish("run_second0123456789")
    site.send(first)
    site.send(second)
    site.begin()
    until((site.project / "up").exists)
    assert len(site.server.named("accept")) == 1
    (site.project / "go").touch()
    site.server.wait_for("terminal", 2)


def test_two_hundred_runs_of_one_boot_leave_no_thread_no_descriptor_and_no_process(site: Site) -> None:
    no_op = 'from tidemill import Command, Job\ntool = Job(key="tool", build=Command(argv=["true"]), writes=[])\n'
    (site.project / "jobs.py").write_text(no_op)
    first = site.publish()
    many = [first.model_copy(update={"run_id": f"run_quick_{at:016d}", "claim_id": f"clm_{at}"}) for at in range(200)]
    site.server.runs.update({inputs.run_id: inputs for inputs in many})
    threads, open_files, children = threading.active_count(), descriptors(), children_of_us()
    site.begin(slots=64)
    for inputs in many:
        site.send(inputs)
    site.server.wait_for("terminal", 200, 100)
    site.end()
    assert {call.body.outcome.state for call in site.server.named("terminal")} == {"succeeded"}
    assert threading.active_count() <= threads
    assert descriptors() <= open_files
    assert children_of_us() <= children
    assert list((site.state / "runs").iterdir()) == []


def children_of_us() -> set[int]:
    return {facts.pid for facts in living_processes() if facts.parent == os.getpid()}
