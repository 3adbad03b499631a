"""The beat thread (scheduler.md 9, S40, S41, BR-065)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chalicelib.kernel.clock import SystemClock
from chalicelib.leases.beats import BeatThread
from chalicelib.leases.boots import BeatAnswer, BootLease, LeaseClosed, key_of
from chalicelib.leases.machine import read_identity
from tests.unit.workers.doubles import Leases


class Answers:
    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.all: list[BeatAnswer] = []

    def take(self, answer: BeatAnswer) -> None:
        with self.condition:
            self.all.append(answer)
            self.condition.notify_all()

    def wait_until(self, told: Callable[[BeatAnswer], bool]) -> BeatAnswer:
        with self.condition:
            assert self.condition.wait_for(lambda: bool(self.all) and told(self.all[-1]), 10), self.all
            return self.all[-1]

    def wait_for_more(self, count: int) -> None:
        with self.condition:
            wanted = len(self.all) + count
            assert self.condition.wait_for(lambda: len(self.all) >= wanted, 10), len(self.all)


@pytest.fixture
def table() -> Leases:
    return Leases()


@pytest.fixture
def lease(table: Leases, tmp_path: Path) -> BootLease:
    made = BootLease(
        table,
        table,
        boot_id="boot_0123456789abcdef",
        owner_token="own_1",
        identity=read_identity(tmp_path, random.Random(1)),
        kind="container",
        locations=["tools"],
        clock=SystemClock(),
    )
    made.open()
    return made


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def beats(lease: BootLease, answers: Answers) -> Iterator[BeatThread]:
    thread = BeatThread(lease, answers.take, clock=SystemClock(), beat_seconds=0.01)
    thread.start()
    yield thread
    thread.close()


def test_a_failing_table_is_waited_out(beats: BeatThread, answers: Answers, table: Leases) -> None:
    answers.wait_for_more(2)
    table.failing.set()
    age = beats.seconds_since_beat()
    deadline = time.monotonic() + 10
    while beats.seconds_since_beat() < age + 0.2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert all(answer.lost is None for answer in answers.all)
    table.failing.clear()
    answers.wait_for_more(2)


def test_signals_arrive_with_a_beat(beats: BeatThread, answers: Answers, table: Leases, lease: BootLease) -> None:
    item = table.items[key_of(lease.boot_id, lease.partition)]
    item["cancel"]["run_1"] = "can_1"
    item["revoked"]["clm_1"] = True
    told = answers.wait_until(lambda answer: "run_1" in answer.cancels)
    assert (told.cancels, told.lost) == ({"run_1": "can_1"}, None)
    assert answers.wait_until(lambda answer: bool(answer.revoked_claims)).revoked_claims == {"clm_1"}


@pytest.mark.parametrize("lost", ["gone", "taken", "revoked"])
def test_a_lost_lease_is_told_once_and_ends_the_thread(
    lost: str, beats: BeatThread, answers: Answers, table: Leases, lease: BootLease
) -> None:
    key = key_of(lease.boot_id, lease.partition)
    if lost == "gone":
        table.items.clear()
    elif lost == "taken":
        table.items[key] = {**table.items[key], "owner_token": "own_2"}
    else:
        table.items[key]["revoked"]["*"] = True
    assert answers.wait_until(lambda answer: answer.lost is not None).lost == lost
    beats.close()
    assert [answer.lost for answer in answers.all if answer.lost] == [lost]


def test_close_joins_and_later_calls_are_refused(
    beats: BeatThread, answers: Answers, lease: BootLease, table: Leases
) -> None:
    answers.wait_for_more(1)
    beats.close()
    sent = table.items[key_of(lease.boot_id, lease.partition)]["counter"]
    assert f"beat-{lease.boot_id}" not in {thread.name for thread in threading.enumerate()}
    beats.close()
    with pytest.raises(LeaseClosed):
        beats.start()
    assert table.items[key_of(lease.boot_id, lease.partition)]["counter"] == sent
    lease.close()
    assert table.items == {}
    for refused in (lease.beat, lambda: lease.record_group("run_1", 1, 1), lambda: lease.forget_group("run_1")):
        with pytest.raises(LeaseClosed):
            refused()


def test_a_busy_main_thread_does_not_delay_beats(beats: BeatThread, answers: Answers) -> None:
    before = len(answers.all)
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline and len(answers.all) < before + 5:
        sum(range(10_000))
    assert len(answers.all) >= before + 5
