"""Reading, revoking and deleting the items of boots on DynamoDB (moto, made atomic)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from chalicelib.cloud.aws import Aws
from chalicelib.cloud.provision import DEAD, QUEUES, provision
from chalicelib.kernel.clock import SystemClock
from chalicelib.leases import revoke
from chalicelib.leases.boots import BootLease, key_of
from chalicelib.leases.hints import Hints, Sleep, shards_to_watch
from chalicelib.leases.machine import read_identity
from chalicelib.leases.observation import BootItem, read_boots
from chalicelib.leases.shard_lease import ShardLease
from chalicelib.local.moto_lock import install_lock
from chalicelib.settings import read_settings


@pytest.fixture
def aws() -> Iterator[Aws]:
    install_lock()
    with mock_aws():
        made = Aws(read_settings({"TIDEMILL_STAGE": "recovery"}))
        provision(made)
        yield made


def lease(aws: Aws, folder: Path, boot_id: str) -> BootLease:
    made = BootLease(
        aws.leases,
        aws.own_leases(),
        boot_id=boot_id,
        owner_token="own_1",
        identity=read_identity(folder, random.Random(1)),
        kind="container",
        locations=["tools"],
        clock=SystemClock(),
        lease_seconds=9,
    )
    made.open()
    return made


def test_boots_are_read_from_their_partitions_with_all_that_recovery_needs(aws: Aws, tmp_path: Path) -> None:
    boots = {f"boot_{number:016}": lease(aws, tmp_path, f"boot_{number:016}") for number in range(6)}
    everywhere = read_boots(aws.leases, range(16))
    assert everywhere == {boot: BootItem("own_1", 0, 9) for boot in boots}
    boot, own = next(iter(boots.items()))
    own.beat()
    own.record_group("run_1", 10, 20)
    revoke(aws.leases, boot, own.partition, "clm_1")
    (read,) = (item for name, item in read_boots(aws.leases, [own.partition]).items() if name == boot)
    assert read == BootItem("own_1", 1, 9, frozenset({"run_1"}), frozenset({"clm_1"}))
    assert not read.stopped
    others = [partition for partition in range(16) if partition != own.partition]
    assert boot not in read_boots(aws.leases, others)


def test_a_boot_that_was_deleted_by_recovery_must_stop(aws: Aws, tmp_path: Path) -> None:
    own = lease(aws, tmp_path, "boot_0000000000000001")
    revoke(aws.leases, own.boot_id, own.partition)
    assert read_boots(aws.leases, [own.partition])[own.boot_id].stopped
    assert own.beat().lost == "revoked"
    aws.leases.remove(*key_of(own.boot_id, own.partition))
    assert own.beat().lost == "gone"


def test_what_a_recovery_saw_is_left_in_the_lease_of_the_shard(aws: Aws) -> None:
    holder, recovery = ShardLease(aws.leases, 0, "own_holder"), ShardLease(aws.leases, 0, "own_recovery")
    held = holder.acquire()
    assert held is not None
    asked = recovery.want("seen")
    assert asked is not None
    assert (asked.owner, asked.wanted) == ("own_holder", held.wanted + 1)
    assert holder.release(held.wanted) is False
    assert holder.renew().observed == "seen"
    recovery.forget_observed("seen")  # only the owner may, and only what it has dealt with
    holder.forget_observed("older")
    assert holder.renew().observed == "seen"
    holder.forget_observed("seen")
    assert holder.renew().observed == ""
    assert ShardLease(aws.leases, 1, "own_other").want("seen") is None


def test_a_hint_becomes_active_by_a_writer_and_passive_by_a_raise(aws: Aws) -> None:
    hints = Hints(aws.hints)
    hints.lower(0)
    assert hints.read_all()[0].active  # an absent one counted as active
    asleep = Sleep(SystemClock().now(), "zone data", 1, active=False)
    assert hints.raise_to(0, hints.generation(0), asleep)
    assert shards_to_watch(hints.read_all()) == []
    hints.lower(0)
    assert shards_to_watch(hints.read_all()) == []
    generation = hints.generation(0)
    hints.activate(0)
    assert not hints.raise_to(0, generation, asleep)
    assert shards_to_watch(hints.read_all()) == [0]


def test_the_queue_of_recovery_is_made_like_the_others(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = sqs.get_queue_url(QueueName=aws.settings.name_of("recovery"))["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert attributes["VisibilityTimeout"] == "180"
    assert aws.settings.name_of("recovery" + DEAD) in attributes["RedrivePolicy"]
    assert "recovery" in QUEUES
