"""A later boot on the same machine proves the end of earlier ones, by their files and their lease items (scheduler.md 7.3)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.ids import IdSource
from chalicelib.leases.boots import BootLease, boots_of_machine, partition_of
from chalicelib.leases.machine import MachineIdentity, process_facts, read_identity
from chalicelib.workers.leftovers import ended_boots
from chalicelib.workers.records import BootFile, record_of_item
from tests.doubles import MemoryTable

IDS = IdSource(SystemClock(), random.Random(7))


class Machine:
    """A state folder, the lease table of the installation, and boots of workers that are made up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = MemoryTable()
        self.identity = read_identity(folder, random.Random(1))

    def boot(self, **changes: object) -> BootLease:
        """An open lease as an earlier worker left it."""
        facts = {name: getattr(self.identity, name) for name in MachineIdentity.__slots__}
        lease = BootLease(
            self.table,
            self.table,
            boot_id=IDS.mint("boot"),
            owner_token=IDS.mint("own"),
            identity=MachineIdentity(**{**facts, **changes}),
            kind="container",
            locations=["cafe"],
            clock=SystemClock(),
        )
        lease.open()
        return lease

    def ended(self) -> list[str]:
        return ended_boots(self.folder, random.Random(1), lambda machine: boots_of_machine(self.table, machine))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


def started(child: subprocess.Popen[bytes]) -> int:
    facts = process_facts(child.pid)
    assert facts is not None
    return facts.started


def gone_pid() -> dict[str, object]:
    """A process that has ended and was reaped."""
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    return {"pid": child, "pid_started": 1}


def test_a_boot_whose_file_is_lost_is_proved_by_its_lease_item(machine: Machine) -> None:
    dead, alive = machine.boot(**gone_pid()), machine.boot()
    assert machine.ended() == [dead.boot_id]
    assert alive.boot_id not in machine.ended()


def test_a_child_group_that_survived_is_no_proof_until_it_is_killed(
    machine: Machine, child: subprocess.Popen[bytes]
) -> None:
    lease = machine.boot(**gone_pid())
    lease.record_group("run_1", child.pid, started(child))
    assert machine.ended() == []
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert machine.ended() == [lease.boot_id]


def test_a_group_that_only_the_file_or_only_the_item_knows_counts(
    machine: Machine, child: subprocess.Popen[bytes]
) -> None:
    lease = machine.boot(**gone_pid())
    item = boots_of_machine(machine.table, machine.identity.machine_id)[0]
    facts = {name: item[name] for name in MachineIdentity.__slots__}
    file = BootFile(machine.folder, lease.boot_id, MachineIdentity(**facts), ["cafe"])
    file.open()
    assert machine.ended() == [lease.boot_id]
    file.record_group("run_1", child.pid, started(child))
    assert machine.ended() == []
    file.forget_group("run_1")
    lease.record_group("run_2", child.pid, started(child))
    assert machine.ended() == []


def test_a_pid_that_was_given_out_again_is_another_process(machine: Machine, child: subprocess.Popen[bytes]) -> None:
    lease = machine.boot(pid=child.pid, pid_started=started(child) - 1)
    assert machine.ended() == [lease.boot_id]
    assert machine.boot(pid=child.pid, pid_started=started(child)).boot_id not in machine.ended()


def test_another_start_of_the_kernel_proves_every_boot_of_before(machine: Machine) -> None:
    lease = machine.boot(kernel_boot_id="of-before", pid_namespace="pid:[1]")
    assert machine.ended() == [lease.boot_id]


@pytest.mark.parametrize("changes", [{"pid_namespace": "pid:[1]"}, {"kernel_boot_id": ""}])
def test_what_cannot_be_seen_from_here_is_no_proof(machine: Machine, changes: dict[str, object]) -> None:
    machine.boot(**gone_pid(), **changes)
    assert machine.ended() == []


def test_a_clone_of_the_host_has_another_random_part_and_proves_nothing(machine: Machine, tmp_path: Path) -> None:
    """Images and clones share the host's machine id and run other kernels: only the random part keeps them apart."""
    machine.boot(**gone_pid())
    machine.boot(kernel_boot_id="of-the-original")
    clone = read_identity(tmp_path / "clone", random.Random(2))
    assert clone.machine_id != machine.identity.machine_id
    found = ended_boots(tmp_path / "clone", random.Random(2), lambda host: boots_of_machine(machine.table, host))
    assert found == []


def test_an_item_that_does_not_say_who_it_was_is_left_alone(machine: Machine) -> None:
    item: dict[str, Any] = {"owner_token": "own_test", "machine_id": machine.identity.machine_id}
    machine.table.put_new("boots#3", "boot#boot_0000000000000009", item)
    assert record_of_item({**item, "sk": "boot#boot_0000000000000009"}) is None
    assert machine.ended() == []


def test_a_child_recorded_while_we_look_is_seen_at_the_second_look(
    machine: Machine, child: subprocess.Popen[bytes]
) -> None:
    lease = machine.boot(**gone_pid())
    looks = 0

    def read(machine_id: str) -> list[Any]:
        nonlocal looks
        found = list(boots_of_machine(machine.table, machine_id))
        looks += 1
        if looks == 1:
            lease.record_group("run_1", child.pid, started(child))
        return found

    assert ended_boots(machine.folder, random.Random(1), read) == []
    assert looks == 2


def test_boots_of_every_partition_are_found(machine: Machine) -> None:
    boots = [machine.boot(**gone_pid()) for _ in range(40)]
    assert len({partition_of(boot.boot_id) for boot in boots}) > 8
    assert machine.ended() == sorted(boot.boot_id for boot in boots)
