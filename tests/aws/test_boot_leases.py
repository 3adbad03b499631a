"""The lease item of a boot on DynamoDB (moto, made atomic): both sides, races, lost replies."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from chalicelib.cloud.aws import Aws, DynamoTable
from chalicelib.cloud.ports import Refusal
from chalicelib.cloud.provision import provision
from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.errors import Unavailable
from chalicelib.leases import lease_is_open, partition_of, revoke, signal_cancel
from chalicelib.leases.boots import BeatAnswer, BootLease, LeaseLost, key_of
from chalicelib.leases.machine import read_identity
from chalicelib.local.moto_lock import install_lock
from chalicelib.settings import read_settings

BOOT = "boot_0123456789abcdef"
Made = Callable[..., BootLease]


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    install_lock()
    with mock_aws():
        made = Aws(read_settings({"TIDEMILL_STAGE": "leases"}))
        provision(made)
        yield made


@pytest.fixture
def table(aws: Aws) -> DynamoTable:
    return aws.leases


@pytest.fixture
def lease_of(aws: Aws, tmp_path: Path) -> Made:
    identity = read_identity(tmp_path, random.Random(1))

    def made(boot_id: str = BOOT, owner: str = "own_1", table: Any = None) -> BootLease:
        return BootLease(
            table or aws.leases,
            table or aws.own_leases(),
            boot_id=boot_id,
            owner_token=owner,
            identity=identity,
            kind="container",
            locations=["tools"],
            clock=SystemClock(),
        )

    return made


def test_partitions_are_fixed_and_spread() -> None:
    assert partition_of(BOOT) == partition_of(BOOT)
    assert {partition_of(f"boot_{number}") for number in range(500)} == set(range(16))


def test_the_item_says_who_and_where(table: DynamoTable, lease_of: Made) -> None:
    lease = lease_of()
    lease.open()
    item = table.get(*key_of(BOOT, lease.partition))
    assert item is not None
    assert set(item) == {
        "pk", "sk", "owner_token", "counter", "kind", "locations", "started_ref", "machine_id", "kernel_boot_id", "pid_namespace",
        "pid", "pid_started", "process_groups", "cancel", "revoked", "lease_seconds", "tidy_at",
    }  # fmt: skip
    assert lease_is_open(table, BOOT, lease.partition)
    lease.close()
    assert not lease_is_open(table, BOOT, lease.partition)


def test_a_beat_moves_the_counter_and_brings_the_signals(table: DynamoTable, lease_of: Made) -> None:
    lease = lease_of()
    lease.open()
    assert lease.beat() == BeatAnswer()
    assert signal_cancel(table, BOOT, lease.partition, "run_1", "can_1")
    assert signal_cancel(table, BOOT, lease.partition, "run_1", "can_1")
    assert revoke(table, BOOT, lease.partition, "clm_1")
    assert lease.beat() == BeatAnswer({"run_1": "can_1"}, frozenset({"clm_1"}))
    item = table.get(*key_of(BOOT, lease.partition))
    assert item is not None
    assert item["counter"] == 2


def test_a_revoked_boot_is_not_open_and_must_stop(table: DynamoTable, lease_of: Made) -> None:
    lease = lease_of()
    lease.open()
    assert revoke(table, BOOT, lease.partition)
    assert not lease_is_open(table, BOOT, lease.partition)
    assert lease.beat().lost == "revoked"


def test_signals_to_a_boot_without_an_item_say_so(table: DynamoTable) -> None:
    assert not signal_cancel(table, BOOT, partition_of(BOOT), "run_1", "can_1")
    assert not revoke(table, BOOT, partition_of(BOOT))
    assert table.get(*key_of(BOOT, partition_of(BOOT))) is None


def test_another_owner_beats_nothing_and_starts_nothing(table: DynamoTable, lease_of: Made) -> None:
    first, second = lease_of(), lease_of(owner="own_2")
    first.open()
    with pytest.raises(Unavailable):
        second.open()
    with first._lock:
        first._owner_token = "own_other"
    assert first.beat().lost == "taken"
    with pytest.raises(LeaseLost):
        first.record_group("run_1", 10, 20)
    first.close()
    assert table.get(*key_of(BOOT, first.partition)) is not None


def test_groups_come_and_go_with_their_runs(table: DynamoTable, lease_of: Made) -> None:
    lease = lease_of()
    lease.open()
    lease.record_group("run_1", 10, 20)
    signal_cancel(table, BOOT, lease.partition, "run_1", "can_1")
    item = table.get(*key_of(BOOT, lease.partition))
    assert item is not None
    assert item["process_groups"] == {"run_1": {"pgid": 10, "started": 20}}
    lease.forget_group("run_1")
    item = table.get(*key_of(BOOT, lease.partition))
    assert item is not None
    assert (item["process_groups"], item["cancel"]) == ({}, {})


class LosesReplies:
    """The real table, whose answers to writes are lost: the write is done, then asked for again by the driver."""

    def __init__(self, table: DynamoTable) -> None:
        self._table = table

    def put_new(self, pk: str, sk: str, attributes: Mapping[str, Any]) -> Refusal | None:
        self._table.put_new(pk, sk, attributes)
        return self._table.put_new(pk, sk, attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


def test_an_own_success_after_a_lost_reply_is_no_loss(table: DynamoTable, lease_of: Made) -> None:
    lease = lease_of(table=LosesReplies(table))
    lease.open()
    assert lease.beat().lost is None


class RefusesOnce(LosesReplies):
    """A condition that is refused although the item is ours, as after a failover of the driver."""

    def update(self, *_arguments: Any, **_named: Any) -> Refusal:
        return Refusal(None)


def test_a_refused_condition_is_settled_by_a_consistent_read(table: DynamoTable, lease_of: Made) -> None:
    lease = lease_of(table=RefusesOnce(table))
    lease.open()
    assert lease.beat().lost is None
    table.delete(*key_of(BOOT, lease.partition), owner_token="own_1")
    assert lease.beat().lost == "gone"


def test_signals_and_beats_at_once_lose_nothing(table: DynamoTable, lease_of: Made) -> None:
    lease = lease_of()
    lease.open()
    threads = [
        threading.Thread(target=signal_cancel, args=(table, BOOT, lease.partition, f"run_{number}", "can"))
        for number in range(8)
    ] + [threading.Thread(target=lambda: [lease.beat() for _ in range(5)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(lease.beat().cancels) == {f"run_{number}" for number in range(8)}
    item = table.get(*key_of(BOOT, lease.partition))
    assert item is not None
    assert item["counter"] == 16
