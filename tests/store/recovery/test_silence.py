"""Silence marks a run and does nothing else; only proof, or never having started, ends it (scheduler.md 9)."""

from __future__ import annotations

import pytest

from chalicelib.kernel.errors import ClaimEnded, RunCancelled
from chalicelib.runs.model import CancelRequest, Report, StartRequest
from tests.store.recovery.conftest import Recovered
from tests.store.world import BOOT, terminal

OTHER = "boot_0000000000000002"


def test_a_worker_that_beats_is_left_alone_and_soon_clear(site: Recovered) -> None:
    """BR-065, the server's side: as long as the counter moves, the run is running, whatever its main thread does."""
    run_id = site.running()
    for _ in range(10):
        before = site.clock.elapsed_seconds()
        result = site.recover()
        assert (result.watched, result.silent, result.lost) == (1, 0, 0)
        assert site.clock.elapsed_seconds() - before < 20
    assert site.end(run_id) == ("running", None)
    assert site.events(run_id)[-1] == "started"


def test_silence_marks_a_running_run_once_and_takes_nothing_from_it(site: Recovered) -> None:
    run_id = site.running()
    held = site.held()
    site.workers.silence()
    before = site.clock.elapsed_seconds()
    assert site.recover().lost == 1
    assert site.clock.elapsed_seconds() - before >= 35
    assert site.marked(run_id)
    assert site.end(run_id) == ("running", None)
    assert site.held() == held
    again = site.recover()
    assert (again.silent, again.lost) == (1, 0)
    assert site.events(run_id).count("heartbeat_lost") == 1
    assert site.alerts() == [(run_id, site.world.claim_of(run_id), True)]
    assert [(h.boot_id, h.kind) for h in site.world.runs.shown(run_id).heartbeats] == [(BOOT, "lost")]


def test_a_beat_that_comes_back_clears_the_mark_with_no_call_of_the_worker(site: Recovered) -> None:
    run_id = site.running()
    site.workers.silence()
    site.recover()
    site.workers.open()
    assert site.recover().heard == 1
    assert not site.marked(run_id)
    assert site.events(run_id)[-2:] == ["heartbeat_lost", "heartbeat_recovered"]
    assert site.alerts() == [(run_id, site.world.claim_of(run_id), False)]
    assert [h.kind for h in site.world.runs.shown(run_id).heartbeats] == ["lost", "recovered"]
    assert site.recover().heard == 0
    site.world.finish(run_id, site.world.claim_of(run_id))
    assert site.end(run_id) == ("succeeded", None)


def test_a_report_of_the_claim_clears_the_mark(site: Recovered) -> None:
    """A worker that is cut off from the table, but not from the API, is there."""
    run_id = site.running()
    site.workers.silence()
    site.recover()
    claim_id = site.world.claim_of(run_id)
    site.world.runs.report(run_id, claim_id, nodes("rep_nodes_0000000001"))
    assert not site.marked(run_id)
    assert site.events(run_id)[-1] == "heartbeat_recovered"
    site.recover()
    assert site.marked(run_id)
    site.world.finish(run_id, claim_id)
    assert site.end(run_id) == ("succeeded", None)
    assert not site.marked(run_id)
    assert site.held() == []


def test_a_run_that_never_started_needs_no_proof(site: Recovered) -> None:
    run_id = site.accepted()
    claim_id = site.world.claim_of(run_id)
    site.workers.silence()
    assert site.recover().ended == [run_id]
    assert site.end(run_id) == ("launch_failed", "lost_before_start")
    assert site.held() == []
    assert site.alerts()[0][2] is False
    item = site.world.leases.get("boots#0", f"boot#{BOOT}")
    assert item is not None
    assert item["revoked"] == {claim_id: True}
    with pytest.raises(ClaimEnded):
        site.world.runs.start(run_id, claim_id, StartRequest(boot_id=BOOT))


def test_a_started_run_without_proof_stays_marked_for_ever(site: Recovered) -> None:
    """BR-062: a worker cut off from everything may still write; nobody may begin beside it."""
    run_id = site.running()
    other = site.world.request("orders")
    site.workers.silence()
    for _ in range(5):
        site.recover()
        site.world.run_pass()
    assert site.marked(run_id)
    assert site.end(run_id) == ("running", None)
    assert site.world.state(other) == "queued"


def test_a_proof_ends_a_marked_run_and_its_relations_settle(site: Recovered) -> None:
    site.world.sql("UPDATE targets SET settle_seconds = 900")
    run_id = site.running()
    claim_id = site.world.claim_of(run_id)
    site.workers.silence()
    site.recover()
    site.prove(run_id)
    assert site.recover().ended == [run_id]
    assert site.end(run_id) == ("failed", "lost")
    assert site.held() == ["a"]  # the slots are free
    assert site.world.leases.get("boots#0", f"boot#{BOOT}") is None
    with pytest.raises(ClaimEnded):
        site.world.finish(run_id, claim_id)
    assert site.events(run_id)[-2:] == ["ended", "late_report"]
    assert site.end(run_id) == ("failed", "lost")


def test_a_proof_that_is_there_already_ends_the_run_with_the_first_look(site: Recovered) -> None:
    run_id = site.running()
    site.prove(run_id)
    site.workers.silence()
    result = site.recover()
    assert (result.lost, result.ended) == (1, [run_id])


def test_a_lambda_is_proved_ended_by_its_longest_life(site: Recovered) -> None:
    site.world.publish({"orders": {"relations": ["a"], "worker": "lambda"}}, snapshot="d" * 64)
    run_id = site.running(kind="lambda")
    site.workers.silence()
    site.recover()
    site.recover()
    assert site.end(run_id) == ("running", None)
    site.clock.advance(960)
    site.recover()
    assert site.end(run_id) == ("failed", "lost")


def test_the_item_of_a_dead_boot_stays_until_its_last_claim_has_ended(site: Recovered) -> None:
    site.world.publish({"orders": {"relations": ["a"]}, "items": {"relations": ["b"]}}, snapshot="d" * 64)
    first, second = site.running("orders"), site.running("items")
    site.workers.silence()
    site.recover()
    site.prove(first)
    site.recover()
    item = site.world.leases.get("boots#0", f"boot#{BOOT}")
    assert item is not None
    assert item["revoked"] == {"*": True}
    site.prove(second)
    assert site.recover().ended == [second]
    assert site.world.leases.get("boots#0", f"boot#{BOOT}") is None


def test_a_cancelled_run_of_a_dead_worker_ends_cancelled(site: Recovered) -> None:
    """BR-088, BR-127: a cancel whose worker is gone does not hang, keeps its claims until proof, and frees them then."""
    site.world.publish({"orders": {"relations": ["a"]}, "items": {"relations": ["b"]}}, snapshot="d" * 64)
    started, unstarted = site.running("orders"), site.accepted("items")
    site.workers.silence()
    for number, run_id in enumerate((started, unstarted)):
        answer = site.world.runs.cancel(run_id, CancelRequest(cancel_id=f"can_000000000000000{number}"), "tester")
        assert answer.status == "cancel_requested"
    site.recover()
    assert site.end(unstarted) == ("cancelled", None)
    assert site.end(started) == ("running", None)
    assert "a" in site.held()
    site.prove(started)
    site.recover()
    assert site.end(started) == ("cancelled", None)
    assert site.held() == []
    with pytest.raises(RunCancelled):
        site.world.finish(started, site.world.claim_of(started))
    assert site.events(started)[-1] == "late_report"
    assert site.end(started) == ("cancelled", None)
    assert site.world.sql("SELECT 1 FROM runs WHERE origin = 'retry'") == []


def test_a_boot_whose_item_is_gone_is_silent(site: Recovered) -> None:
    """BR-067: a dead worker's row is deleted before its runs were looked at; its name says nothing."""
    run_id = site.accepted()
    site.workers.close()
    site.workers.open(OTHER)
    assert site.recover().ended == [run_id]
    assert site.end(run_id) == ("launch_failed", "lost_before_start")


def test_a_worker_that_comes_back_under_a_new_boot_keeps_nothing_alive(site: Recovered) -> None:
    """BR-067: a boot is one start of a process; the next start is another boot."""
    run_id = site.running()
    site.workers.silence()
    site.workers.open(OTHER)
    assert site.recover().lost == 1
    assert site.marked(run_id)


def test_an_item_that_goes_while_it_is_watched_is_watched_anew(site: Recovered) -> None:
    run_id = site.accepted()
    gone = site.clock.elapsed_seconds() + 20

    def close_then() -> None:
        if site.clock.elapsed_seconds() >= gone:
            site.workers.close()

    site.workers.silence()
    site.clock.listeners.append(close_then)
    site.recover()
    assert site.clock.elapsed_seconds() - gone >= 35
    assert site.end(run_id) == ("launch_failed", "lost_before_start")


def test_age_and_time_to_live_decide_nothing(site: Recovered) -> None:
    """BR-079: an item past its TTL that moves is alive, one far from it that stands still is not."""
    run_id = site.running()
    item = site.world.leases.items["boots#0", f"boot#{BOOT}"]
    item["tidy_at"] = 1
    assert site.recover().silent == 0
    item["tidy_at"] = 99_999_999_999
    site.workers.silence()
    assert site.recover().lost == 1
    assert site.marked(run_id)


@pytest.mark.parametrize("order", ["beat after the end", "end after the last beat"])
def test_a_finished_run_is_never_touched(site: Recovered, order: str) -> None:
    """BR-064: a beat after the end and then silence, or silence from the end on, changes nothing."""
    run_id = site.running()
    if order == "end after the last beat":
        site.workers.silence()
    site.world.finish(run_id, site.world.claim_of(run_id))
    site.clock.advance(20)
    site.workers.silence()
    before = site.events(run_id)
    site.clock.advance(600)
    result = site.recover()
    assert (result.watched, result.lost, result.ended) == (0, 0, [])
    assert site.end(run_id) == ("succeeded", None)
    assert site.events(run_id) == before
    assert site.alerts() == []


def nodes(key: str) -> Report:
    return terminal("succeeded").model_copy(update={"report_key": key, "kind": "nodes", "outcome": None})
