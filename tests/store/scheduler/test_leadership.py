"""One leader a shard; a stale one commits nothing (S5 to S9)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from chalicelib.cloud.ports import Refusal
from chalicelib.database import Transaction
from chalicelib.kernel.errors import Unavailable
from chalicelib.leases.fence import Fence, Fenced
from chalicelib.leases.shard_lease import ShardLease
from chalicelib.scheduler.leadership import Leadership
from tests.doubles import HandClock, MemoryTable
from tests.store.world import World


class Beating(HandClock):
    """A clock in whose every second somebody else does something."""

    def __init__(self, each_second: Any) -> None:
        super().__init__()
        self._each_second = each_second

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._each_second()


def test_the_second_gets_nothing_while_the_first_leads(world: World) -> None:
    first = world.leader()
    assert world.lead() is None
    assert first.release(None)
    second = world.leader()
    assert second.epoch == first.epoch + 1


def test_a_lease_is_taken_over_only_after_a_whole_lease_of_silence(world: World, clock: HandClock) -> None:
    dead = world.leader()
    before = clock.elapsed_seconds()
    taker = world.leader(watch=True)
    assert clock.elapsed_seconds() - before >= 35
    assert taker.epoch == dead.epoch + 1


def test_a_lease_whose_owner_beats_is_left_alone(world: World) -> None:
    living = world.leader()
    clock = Beating(living.renew)
    watcher = Leadership(world.database, world.leases, world.ids, clock, lease_seconds=30)
    assert watcher.lead(0, watch=True) is None
    assert clock.elapsed_seconds() < 35


def test_a_watcher_takes_a_lease_that_is_freed_while_it_looks(world: World) -> None:
    leaving = world.leader()
    clock = Beating(lambda: leaving.release(None))
    watcher = Leadership(world.database, world.leases, world.ids, clock, lease_seconds=30)
    assert watcher.lead(0, watch=True) is not None
    assert clock.elapsed_seconds() < 5


def test_a_stale_leader_commits_nothing(world: World) -> None:
    stale = world.leader()
    world.leader(watch=True)
    with pytest.raises(Fenced):
        stale.write(lambda tx: tx.now)
    with pytest.raises(Fenced):
        stale.renew()


def test_the_fence_holds_until_the_commit_of_who_was_there_first(world: World) -> None:
    """A taker waits for a transaction that has passed the fence, and that one still commits under its own epoch."""
    leader = world.leader()
    inside, go_on, order = threading.Event(), threading.Event(), list[str]()

    def slow(tx: Transaction) -> None:
        inside.set()
        go_on.wait(10)
        order.append("commit")

    def take() -> None:
        world.leases.items.clear()
        world.leader()
        order.append("taken")

    writer = threading.Thread(target=lambda: leader.write(slow))
    writer.start()
    assert inside.wait(10)
    taker = threading.Thread(target=take)
    taker.start()
    taker.join(0.3)
    assert taker.is_alive()
    go_on.set()
    writer.join(10)
    taker.join(10)
    assert order == ["commit", "taken"]


def test_epochs_rise_also_after_a_failover_that_lost_some(world: World) -> None:
    """S6: DynamoDB remembers the newest epoch, so a database restored from before it goes on above."""
    epochs = []
    for _ in range(3):
        leader = world.leader()
        epochs.append(leader.epoch)
        leader.release(None)
    world.sql("UPDATE scheduler_shards SET epoch = 1, owner_token = ''")
    assert world.leader().epoch == epochs[-1] + 1


def test_a_repeated_bump_after_a_lost_commit_reply_bumps_once(world: World) -> None:
    from chalicelib.leases.fence import bump

    first = world.database.write(lambda tx: bump(tx, 0, "own_one", 0))
    assert world.database.write(lambda tx: bump(tx, 0, "own_one", 0)) == first
    assert world.database.write(lambda tx: bump(tx, 0, "own_two", 0)) == Fence(0, first.epoch + 1, "own_two")


def test_the_check_counts_its_row(world: World) -> None:
    with pytest.raises(Fenced):
        world.database.write(Fence(0, 99, "").check)
    with pytest.raises(Fenced):
        world.database.write(Fence(7, 0, "").check)
    leader = world.leader()
    with pytest.raises(Fenced):
        world.database.write(Fence(0, leader.epoch, "own_of_another").check)


class Forgetful(MemoryTable):
    """Does what is asked and loses the reply, once."""

    def __init__(self) -> None:
        super().__init__()
        self.losing = False

    def update(self, *key: str, **named: Any) -> Mapping[str, Any] | Refusal:
        answer = super().update(*key, **named)
        if self.losing:
            self.losing = False
            raise Unavailable("the reply is lost")
        return answer


@pytest.mark.parametrize("step", ["acquire", "take_over", "renew", "note_epoch", "release"])
def test_a_lost_reply_of_our_own_success_is_not_taken_for_a_loss(step: str) -> None:
    """S9: whose token stands in the item decides."""
    table = Forgetful()
    held = ShardLease(table, 0, "own_before").acquire()
    assert held is not None
    if step != "take_over":
        ShardLease(table, 0, "own_before").release(None)
    lease = ShardLease(table, 0, "own_me")
    if step in {"renew", "note_epoch", "release"}:
        assert lease.acquire() is not None
    table.losing = True
    calls: dict[str, Any] = {
        "acquire": lease.acquire,
        "take_over": lambda: lease.take_over(held),
        "renew": lease.renew,
        "note_epoch": lambda: lease.note_epoch(3),
        "release": lambda: lease.release(None),
    }
    assert calls[step]()
    assert table.losing is False
    item = table.items["sched#0", "lease"]
    assert item["owner_token"] == ("" if step == "release" else "own_me")


def test_a_lost_reply_of_a_refusal_stays_unknown() -> None:
    table = Forgetful()
    assert ShardLease(table, 0, "own_other").acquire() is not None
    table.losing = False

    class Away(Forgetful):
        def update(self, *key: str, **named: Any) -> Mapping[str, Any] | Refusal:
            raise Unavailable("nothing was done")

    away = Away()
    away.items = table.items
    with pytest.raises(Unavailable):
        ShardLease(away, 0, "own_me").acquire()


def test_a_wake_up_during_a_pass_is_another_pass(world: World) -> None:
    """``want`` while a shard is led is never lost: the release refuses until it was seen."""
    leader = world.leader()
    wanted = leader.wanted
    assert world.lead() is None
    assert leader.release(wanted) is False
    leader.renew()
    assert leader.wanted == wanted + 1
    assert leader.release(leader.wanted) is True


def test_a_leader_that_cannot_get_its_epoch_gives_the_lease_back(world: World) -> None:
    world.sql("UPDATE scheduler_shards SET shard = 5 WHERE shard = 0")
    assert world.lead() is None
    assert world.leases.items["sched#0", "lease"]["owner_token"] == ""


def test_a_failing_pass_releases_the_shard_at_once(world: World) -> None:
    world.publish({"orders": {}})
    world.request("orders")
    world.queues.broken = True
    with pytest.raises(Unavailable):
        world.run_pass()
    assert world.leases.items["sched#0", "lease"]["owner_token"] == ""
