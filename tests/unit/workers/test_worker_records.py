"""What a boot leaves on disk, and ending what it left (scheduler.md 7.3)."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chalicelib.kernel.clock import SystemClock
from chalicelib.leases.machine import MachineIdentity, process_facts, read_identity
from chalicelib.workers.leftovers import end_leftovers, ended_boots
from chalicelib.workers.records import BootFile, boot_records, remains_of, settle

BOOT = "boot_0123456789abcdef"
Sleeper = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def identity(tmp_path: Path) -> MachineIdentity:
    return read_identity(tmp_path, random.Random(1))


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """Start a child with a session of its own, which is reaped by itself when it is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def make() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "60"], start_new_session=True))
        return started[-1]

    yield make
    for child in started:
        child.kill()
        child.wait()


def recorded(tmp_path: Path, identity: MachineIdentity, **changes: object) -> BootFile:
    facts = {name: getattr(identity, name) for name in MachineIdentity.__slots__} | changes
    made = BootFile(tmp_path, BOOT, MachineIdentity(**facts), ["tools"])
    made.open()
    return made


def started(child: subprocess.Popen[bytes]) -> int:
    facts = process_facts(child.pid)
    assert facts is not None
    return facts.started


def test_the_file_is_private_and_follows_the_groups(tmp_path: Path, identity: MachineIdentity) -> None:
    file = recorded(tmp_path, identity)
    file.record_group("run_1", 10, 20)
    file.record_group("run_2", 11, 21)
    file.forget_group("run_1")
    record = boot_records(tmp_path)[0]
    assert (record.boot_id, record.locations, set(record.groups)) == (BOOT, ("tools",), {"run_2"})
    assert (tmp_path / "boots").stat().st_mode & 0o777 == 0o700
    settle(tmp_path, BOOT)
    settle(tmp_path, BOOT)
    assert boot_records(tmp_path) == []


def test_a_broken_file_stops_nothing(tmp_path: Path, identity: MachineIdentity) -> None:
    recorded(tmp_path, identity)
    (tmp_path / "boots" / "boot_half.json").write_text('{"boot_id": ')
    (tmp_path / "boots" / "boot_other.json").write_text("[]")
    assert [record.boot_id for record in boot_records(tmp_path)] == [BOOT]


def test_a_living_worker_is_not_ended_by_looking(tmp_path: Path, identity: MachineIdentity) -> None:
    recorded(tmp_path, identity)
    assert ended_boots(tmp_path, random.Random(1)) == []


def test_a_pid_given_out_again_is_another_process(tmp_path: Path, identity: MachineIdentity, sleeper: Sleeper) -> None:
    child = sleeper()
    file = recorded(tmp_path, identity, pid=child.pid, pid_started=started(child) - 1)
    file.record_group("run_1", child.pid, started(child) - 1)
    assert ended_boots(tmp_path, random.Random(1)) == [BOOT]
    assert end_leftovers(tmp_path, SystemClock(), random.Random(1)) == [BOOT]
    assert child.poll() is None


@pytest.mark.parametrize(
    ("changes", "proved"),
    [
        ({"kernel_boot_id": "earlier"}, True),
        ({"machine_id": "another"}, False),
        ({"pid_namespace": "pid:[1]"}, False),
        ({"kernel_boot_id": "earlier", "machine_id": "another"}, False),
    ],
)
def test_what_this_machine_can_prove(
    tmp_path: Path, identity: MachineIdentity, changes: dict[str, object], proved: bool
) -> None:
    recorded(tmp_path, identity, **changes)
    assert remains_of(boot_records(tmp_path)[0], identity.machine_id).gone is proved
    assert ended_boots(tmp_path, random.Random(1)) == ([BOOT] if proved else [])
    assert end_leftovers(tmp_path, SystemClock(), random.Random(1)) == ([BOOT] if proved else [])


def test_leftovers_are_ended_the_worker_and_its_groups(
    tmp_path: Path, identity: MachineIdentity, sleeper: Sleeper
) -> None:
    worker, child = sleeper(), sleeper()
    file = recorded(tmp_path, identity, pid=worker.pid, pid_started=started(worker))
    file.record_group("run_1", child.pid, started(child))
    assert end_leftovers(tmp_path, SystemClock(), random.Random(1)) == [BOOT]
    assert (process_facts(worker.pid), process_facts(child.pid)) == (None, None)
    assert {os.waitstatus_to_exitcode(os.waitpid(one.pid, 0)[1]) for one in (worker, child)} == {-9}
    for one in (worker, child):
        one.returncode = -9
