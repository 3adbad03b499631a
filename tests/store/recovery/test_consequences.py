"""What recovery frees, sends again and passes on, whatever else goes on."""

from __future__ import annotations

import json
from datetime import timedelta

from chalicelib.cron import tzdata_version
from chalicelib.kernel.limits import LOST_PER_BATCH
from chalicelib.leases.boots import key_of
from chalicelib.leases.hints import Sleep
from chalicelib.leases.lowering import partitions_of, shard_serving
from chalicelib.runs.model import AcceptRequest
from tests.store.recovery.conftest import Recovered
from tests.store.world import BOOT

OTHER = "boot_0000000000000002"


def hint_is_active(site: Recovered, shard: int = 0) -> bool:
    return site.world.domains.hints.read_all()[shard].active


def test_a_dead_worker_frees_its_slot_within_a_lease_and_a_sweep(site: Recovered) -> None:
    """BR-083: pool of 1; the holder's worker is killed with no goodbye and proved gone; the next run starts."""
    pool = [{"name": "narrow", "weight": 1}]
    site.world.sql("INSERT INTO pools VALUES ('narrow', 1)")
    site.world.publish({"orders": {"pools": pool}, "items": {"pools": pool}}, snapshot="d" * 64)
    first = site.running("orders")
    waiting = site.claimed("items")
    assert site.world.state(waiting) == "queued"
    site.workers.silence()
    site.prove(first)
    site.recover()
    site.world.run_pass()
    assert site.world.state(waiting) == "claimed"
    assert site.world.sql("SELECT run_id FROM slots WHERE pool = 'narrow'") == [{"run_id": waiting}]


def test_recovery_needs_no_slot_of_what_it_recovers(site: Recovered) -> None:
    """BR-100: at the limit of 3 with 3 dead, all 3 are recovered, and then at most 3 run."""
    site.world.publish({"orders": {"concurrency": 3}}, snapshot="d" * 64)
    runs = {site.world.request("orders") for _ in range(6)}
    site.world.run_pass()
    dead = site.claimed_now()
    assert len(dead) == 3
    for run_id in dead:
        site.world.accept(run_id)
    site.workers.silence()
    assert set(site.recover().ended) == dead
    site.world.run_pass()
    assert site.claimed_now() == runs - dead


def test_one_dead_run_does_not_block_the_next_of_its_job(site: Recovered) -> None:
    """BR-100 with a limit of 1."""
    first = site.claimed()
    site.world.start(first)
    second = site.claimed()
    assert site.world.state(second) == "queued"
    site.workers.silence()
    site.prove(first)
    site.recover()
    site.world.run_pass()
    assert site.end(first) == ("failed", "lost")
    assert site.world.state(second) == "claimed"


def test_full_batches_follow_each_other_without_pause(site: Recovered) -> None:
    count = 2 * LOST_PER_BATCH + 7
    site.world.publish({"orders": {"concurrency": 200}}, snapshot="d" * 64)
    site.world.sql("UPDATE pools SET slot_limit = 1000")
    runs = [site.world.request("orders") for _ in range(count)]
    for _ in range(3):
        site.world.run_pass()
    for run_id in runs:
        site.world.start(run_id)
    site.workers.silence()
    before = site.clock.elapsed_seconds()
    assert site.recover().lost == count
    assert site.clock.elapsed_seconds() - before < 41  # the observation, and nothing after it
    lost = site.world.sql("SELECT occurred_at, count(*) AS n FROM run_events WHERE kind = 'heartbeat_lost' GROUP BY 1")
    assert sum(row["n"] for row in lost) == count
    assert site.world.sql("SELECT count(*) AS n FROM heartbeat_observations") == [{"n": 1}]


def test_the_hint_is_active_while_there_is_a_boot_to_watch(site: Recovered) -> None:
    site.world.run_pass()
    assert not hint_is_active(site)
    run_id = site.claimed()
    assert not hint_is_active(site)
    site.world.accept(run_id)
    assert hint_is_active(site)
    site.world.run_pass()
    assert hint_is_active(site)
    site.world.finish(run_id, site.world.claim_of(run_id), "launch_failed", reason="drift")
    site.world.run_pass()
    assert not hint_is_active(site)


def test_a_recovery_that_finds_nobody_has_the_hint_say_so(site: Recovered) -> None:
    site.accepted()
    site.world.runs.boot_ended(BOOT)
    site.world.queues.sent.clear()
    assert hint_is_active(site)
    assert site.recover().watched == 0
    assert [json.loads(body)["kind"] for body in site.world.queues.sent["tick"]] == ["wake"]
    site.world.run_pass()
    assert not hint_is_active(site)


def test_the_minute_starts_recovery_where_there_is_a_boot_and_touches_no_store_for_it(site: Recovered) -> None:
    hints, statements = site.world.domains.hints, site.world.database.statements
    for active, sent in ((True, {"recovery": ['{"kind":"recovery","shard":0,"v":1}']}), (False, {})):
        asleep = Sleep(site.clock.now() + timedelta(hours=1), tzdata_version(), 1, active=active)
        assert hints.raise_to(0, hints.generation(0), asleep)
        site.world.queues.sent.clear()
        assert site.world.scheduler.minute() == []
        assert site.world.queues.sent == sent
    assert site.world.database.statements == statements


def test_a_queue_that_does_not_answer_holds_up_no_schedule(site: Recovered) -> None:
    site.running()
    site.world.queues.broken = True
    assert [result.led for result in site.world.scheduler.minute()] == [True]


def test_a_boot_is_watched_by_the_shard_of_its_partition_whatever_its_runs_are(site: Recovered) -> None:
    """BR-059: whoever launched a run, another one may settle it; the hint of the run's own shard is lowered for that."""
    site.world.scheduler.reshard(3)
    run_id = site.world.request("orders")
    (placed,) = site.world.sql("SELECT shard FROM runs WHERE run_id = %s", run_id)
    watcher = (placed["shard"] + 1) % 3
    partition = watcher
    site.world.scheduler.run_pass(placed["shard"])
    pk, sk = key_of(OTHER, partition)
    site.world.leases.put_new(
        pk, sk, {"owner_token": "own", "counter": 1, "lease_seconds": 30, "cancel": {}, "revoked": {}}
    )
    for shard in range(3):
        site.world.scheduler.run_pass(shard)
    assert not hint_is_active(site, watcher)
    claim_id = site.world.claim_of(run_id)
    request = AcceptRequest(claim_id=claim_id, boot_id=OTHER, boot_partition=partition, worker_kind="container")
    site.world.runs.accept(run_id, request)
    assert hint_is_active(site, watcher)
    for shard in range(3):
        site.world.scheduler.run_pass(shard)
    generation = site.world.domains.hints.generation(placed["shard"])
    assert [site.recover(shard).ended for shard in range(3) if shard != watcher] == [[], []]
    assert site.recover(watcher).ended == [run_id]
    assert site.world.domains.hints.generation(placed["shard"]) > generation


def test_another_number_of_shards_makes_all_of_them_active(site: Recovered) -> None:
    site.world.run_pass()
    assert not hint_is_active(site)
    site.world.scheduler.reshard(2)
    assert all(hint.active for hint in site.world.domains.hints.read_all().values())
    assert site.recover(7).watched == 0  # a message of before, for a shard that is not there


def test_every_partition_is_watched_by_one_shard() -> None:
    for shards in (1, 2, 3, 16, 17, 100):
        watched = [partition for shard in range(shards) for partition in partitions_of(shard, shards)]
        assert sorted(watched) == list(range(16))
        assert all(shard_serving(partition, shards) < shards for partition in range(16))


def test_a_message_that_was_not_sent_is_sent_by_recovery(site: Recovered) -> None:
    """BR-052: killed between the claim's commit and its send, while another run keeps the shard active."""
    site.world.publish({"orders": {"relations": ["a"]}, "items": {"relations": ["b"]}}, snapshot="d" * 64)
    site.accepted("orders")
    run_id = site.claimed("items")
    site.world.sql("UPDATE outbox SET sent_at = NULL WHERE claim_id = %s", site.world.claim_of(run_id))
    site.clock.advance(31)
    site.world.queues.sent.clear()
    site.recover()
    assert [json.loads(body)["run_id"] for body in site.world.queues.sent["run-container"]] == [run_id]
    assert site.events(run_id)[-1] == "dispatched"


def test_a_boot_that_still_works_for_an_ended_claim_is_told_again_to_stop(site: Recovered) -> None:
    """BR-071: the revocation was lost; what has a process of the claim hears it from the next recovery."""
    site.world.publish({"orders": {"relations": ["a"]}, "items": {"relations": ["b"]}}, snapshot="d" * 64)
    ended, going_on = site.running("orders"), site.running("items")
    claim_id = site.world.claim_of(ended)
    site.world.finish(ended, claim_id)
    item = site.world.leases.items[key_of(BOOT, 0)]
    item["process_groups"] = {ended: {"pgid": 1, "started": 1}, going_on: {"pgid": 2, "started": 2}}
    site.recover()
    assert item["revoked"] == {claim_id: True}


def test_a_cancel_is_signalled_again_until_the_run_ends(site: Recovered) -> None:
    from chalicelib.runs.model import CancelRequest

    run_id = site.running()
    site.world.runs.cancel(run_id, CancelRequest(cancel_id="can_0000000000000001"), "tester")
    site.world.leases.items[key_of(BOOT, 0)]["cancel"] = {}
    site.recover()
    assert site.world.leases.items[key_of(BOOT, 0)]["cancel"] == {run_id: "can_0000000000000001"}


def test_why_says_since_when_a_run_is_silent_and_what_would_end_it(site: Recovered) -> None:
    run_id = site.running()
    site.workers.silence()
    site.recover()
    site.clock.advance(240)
    why = site.world.runs.why(run_id).explanation
    assert "silent since 2026-12-01T06:00:3" in why
    assert "4 min" in why
    assert "supervisor" in why
    assert f"tidemill runs resolve {run_id}" in why
