"""What stood still, came late or died in the middle: nobody is condemned wrongly, and nothing that was seen is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from chalicelib.kernel.errors import Unavailable
from chalicelib.leases.boots import key_of
from tests.store.recovery.conftest import Recovered, Seconds
from tests.store.world import BOOT


def on_read(site: Recovered, act: Callable[[int], None]) -> None:
    """Call ``act`` with the number of each read of a partition of boots, before it is answered."""
    read, reads = site.world.leases.partition, [0]

    def partition(pk: str) -> Sequence[Any]:
        reads[0] += 1
        act(reads[0])
        return read(pk)

    setattr(site.world.leases, "partition", partition)  # noqa: B010 - the double of DynamoDB, for this test


def while_it_acts(site: Recovered, act: Callable[[], None]) -> None:
    """Call ``act`` once, when recovery leads the shard and looks at the silent boots for the last time."""
    done: list[bool] = []

    def maybe(_: int) -> None:
        item = site.world.leases.items.get(("sched#0", "lease"))
        if not done and item is not None and item["owner_token"]:
            done.append(True)
            act()

    on_read(site, maybe)


def frozen_table(site: Recovered, since: float, seconds: float) -> None:
    """DynamoDB answers nobody for a while: whoever reads waits until it does, and no beat arrives."""
    started = site.clock.elapsed_seconds()

    def wait(_: int) -> None:
        at = site.clock.elapsed_seconds() - started
        if since <= at < since + seconds:
            site.workers.silence()
            site.clock.advance(since + seconds - at)
            site.workers.open()

    on_read(site, wait)


@pytest.mark.parametrize("since", [0, 4, 19, 30])
def test_a_table_that_stood_still_condemns_nobody(site: Recovered, since: float) -> None:
    """BR-061: silence is counted from when somebody could have been heard again."""
    run_id = site.accepted()
    frozen_table(site, since, 40)
    result = site.recover()
    assert (result.silent, result.lost) == (0, 0)
    assert site.end(run_id) == ("claimed", None)


def test_after_the_table_answers_again_a_whole_lease_is_watched(site: Recovered) -> None:
    run_id = site.accepted()
    site.workers.silence()
    started = site.clock.elapsed_seconds()

    def wait(_: int) -> None:
        if 15 <= site.clock.elapsed_seconds() - started < 45:
            site.clock.advance(30)

    on_read(site, wait)
    assert site.recover().ended == [run_id]
    assert site.clock.elapsed_seconds() - started >= 15 + 30 + 35


def test_an_observer_that_was_paused_begins_anew(site: Recovered) -> None:
    """A suspended machine: the workers on it stood still as well, and beat again with it."""
    run_id = site.accepted()
    site.workers.silence()
    started, paused = site.clock.elapsed_seconds(), list[bool]()

    def pause() -> None:
        if not paused and site.clock.elapsed_seconds() - started >= 12:
            paused.append(True)
            site.clock.advance(600)
            site.workers.open()

    site.clock.listeners.append(pause)
    result = site.recover()
    assert (paused, result.silent, result.lost) == ([True], 0, 0)
    assert site.end(run_id) == ("claimed", None)


def test_reads_that_fail_prove_no_silence(site: Recovered) -> None:
    """For 40 seconds neither this observer nor a worker reaches the table."""
    run_id = site.accepted()
    started = site.clock.elapsed_seconds()

    def outage() -> None:
        site.world.leases.broken = 10 <= site.clock.elapsed_seconds() - started < 50

    site.clock.listeners.append(outage)
    site.workers.silence()
    site.clock.listeners.append(lambda: site.workers.open() if site.clock.elapsed_seconds() - started >= 52 else None)
    assert site.recover().lost == 0
    assert site.end(run_id) == ("claimed", None)


def test_a_table_that_never_answers_ends_in_no_conclusion(site: Recovered) -> None:
    run_id = site.accepted()
    site.workers.silence()
    site.world.leases.broken = True
    result = site.recover()
    assert (result.watched, result.silent, result.lost) == (None, 0, 0)
    assert site.end(run_id) == ("claimed", None)


def test_a_store_that_stands_still_breaks_the_observation(site: Recovered) -> None:
    """Workers that beat through the API stand still with the store: its silence is not theirs."""
    run_id = site.accepted()
    site.workers.silence()
    started, slow = site.clock.elapsed_seconds(), list[float]()
    look = site.world.database.transaction

    def transaction() -> Any:
        if not slow and site.clock.elapsed_seconds() - started >= 20:
            slow.append(site.clock.elapsed_seconds())
            site.clock.advance(30)
        return look()

    setattr(site.world.database, "transaction", transaction)  # noqa: B010 - a store that is slow once
    assert site.recover().ended == [run_id]
    assert site.clock.elapsed_seconds() - slow[0] >= 30 + 35


def test_who_finishes_between_the_look_and_the_write_has_finished(site: Recovered) -> None:
    """BR-070: decided again under the row lock."""
    run_id = site.running()
    site.workers.silence()
    while_it_acts(site, lambda: site.world.finish(run_id, site.world.claim_of(run_id)))
    result = site.recover()
    assert (result.silent, result.lost, result.ended) == (1, 0, [])
    assert site.end(run_id) == ("succeeded", None)
    assert site.events(run_id)[-1] == "ended"
    assert site.alerts() == []


def test_who_beats_between_the_look_and_the_write_is_alive(site: Recovered) -> None:
    run_id = site.accepted()
    site.workers.silence()

    def beat() -> None:
        site.world.leases.items[key_of(BOOT, 0)]["counter"] += 1

    while_it_acts(site, beat)
    result = site.recover()
    assert (result.silent, result.lost) == (1, 0)
    assert site.end(run_id) == ("claimed", None)


def test_what_was_seen_while_another_leads_is_acted_upon_by_that_one(site: Recovered) -> None:
    run_id = site.accepted()
    site.workers.silence()
    holder = site.world.leader()
    wanted = holder.wanted
    result = site.recover()
    assert (result.left, result.lost) == (True, 0)
    assert not site.marked(run_id)
    assert holder.release(wanted) is False  # it owes another pass
    holder.release(None)
    site.world.run_pass()
    assert site.end(run_id) == ("launch_failed", "lost_before_start")
    item = site.world.leases.get("sched#0", "lease")
    assert item is not None
    assert item["observed"] == ""


def test_what_was_left_is_dropped_when_the_boot_was_heard_since(site: Recovered) -> None:
    run_id = site.accepted()
    site.workers.silence()
    holder = site.world.leader()
    site.recover()
    holder.release(None)
    site.workers.open()
    site.clock.advance(15)
    site.world.run_pass()
    assert site.end(run_id) == ("claimed", None)


def test_a_recovery_that_died_with_the_lease_does_not_stop_the_next(site: Recovered) -> None:
    """BR-068: the lease expires like any other, and the queue that recovery repairs is not its own."""
    run_id = site.accepted()
    site.workers.silence()
    site.world.leader()  # it was killed with the lease in its hand
    assert site.recover().left
    before = site.clock.elapsed_seconds()
    site.world.scheduler.visit(0, "minute")
    assert site.clock.elapsed_seconds() - before <= 36
    assert site.end(run_id) == ("launch_failed", "lost_before_start")


def test_a_wish_for_a_pass_that_came_while_recovery_led_is_not_lost(site: Recovered) -> None:
    site.accepted()
    site.workers.silence()
    site.world.queues.sent.clear()
    while_it_acts(site, lambda: _wish(site))
    site.recover()
    assert '{"kind":"wake","shard":0,"v":1}' in site.world.queues.sent["tick"]
    assert site.world.lead() is not None  # it was released


def _wish(site: Recovered) -> None:
    assert site.world.lead() is None


def test_a_recovery_that_was_fenced_writes_nothing(site: Recovered) -> None:
    run_id = site.accepted()
    site.workers.silence()

    def usurp() -> None:
        del site.world.leases.items["sched#0", "lease"]
        site.world.leader()

    while_it_acts(site, usurp)
    assert site.recover().lost == 0
    assert not site.marked(run_id)


def test_twice_at_once_is_once(site: Recovered) -> None:
    """The message may arrive twice; the second finds everything done."""
    run_id = site.accepted()
    site.workers.silence()
    while_it_acts(site, lambda: None)
    assert site.recover().ended == [run_id]
    events = site.events(run_id)
    assert site.recover().ended == []
    assert site.events(run_id) == events


def test_hints_that_cannot_be_lowered_leave_the_runs_as_they_are(site: Recovered) -> None:
    run_id = site.accepted()
    site.workers.silence()
    site.world.hints.broken = True
    with pytest.raises(Unavailable):
        site.recover()
    assert not site.marked(run_id)
    site.world.hints.broken = False
    assert site.recover().ended == [run_id]


def test_stopping_ends_an_observation_without_a_conclusion(site: Recovered, clock: Seconds) -> None:
    site.accepted()
    site.workers.silence()
    started = clock.elapsed_seconds()
    clock.listeners.append(
        lambda: site.world.domains.recovery.close() if clock.elapsed_seconds() - started >= 10 else None
    )
    result = site.recover()
    assert result.lost == 0
    assert clock.elapsed_seconds() - started < 11
