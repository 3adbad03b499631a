"""Beats of workers outside the account, which come over HTTP and move the very same items (scheduler.md 9, 17)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from ..cloud.ports import LeaseTable
from ..kernel.errors import IdReused
from ..kernel.limits import LEASE_LONGEST_SECONDS, STARTED_REF_CHARACTERS
from ..kernel.records import CLIENT_ID_PATTERN, Record
from .boots import beat, key_of, partition_of, tidy_at

_Id = Annotated[str, Field(pattern=CLIENT_ID_PATTERN)]
_Name = Annotated[str, Field(max_length=128)]
_Number = Annotated[int, Field(ge=0, lt=2**53)]


class ProcessGroup(Record):
    """The process group of a run's child: the pid of its leader, and when that started in clock ticks."""

    pgid: _Number
    started: _Number


class BootFacts(Record):
    """Who a boot is, with its first beat: what a later boot on that machine compares with."""

    kind: Literal["lambda", "container"] = "container"
    machine_id: _Name
    kernel_boot_id: _Name
    pid_namespace: _Name
    pid: _Number
    pid_started: _Number
    started_ref: Annotated[str, Field(max_length=STARTED_REF_CHARACTERS)] | None = None
    lease_seconds: Annotated[int, Field(ge=3, le=LEASE_LONGEST_SECONDS)]


class HeartbeatRequest(Record):
    """``POST /worker/heartbeat``. ``owner_token`` is the boot's own secret: whoever has it may beat for the boot.

    ``boot`` opens the boot and comes with its first beat only. ``process_groups``, by run, replaces what was recorded.
    """

    boot_id: _Id
    owner_token: _Id
    boot: BootFacts | None = None
    process_groups: Annotated[dict[_Id, ProcessGroup], Field(max_length=1_000)] | None = None


class Heartbeat(Record):
    """What the beat brought back: cancel signals (run: cancel id), revoked claims, and why the lease is ours no more.

    ``boot_partition`` is what accepts of this boot name. With ``lost`` all work must stop.
    """

    boot_partition: int
    cancels: dict[str, str]
    revoked_claims: list[str]
    lost: Literal["gone", "taken", "revoked"] | None


def take_heartbeat(table: LeaseTable, request: HeartbeatRequest, locations: Sequence[str], now: datetime) -> Heartbeat:
    """Move the boot's counter, after making its item when the boot opens.

    Raises ``IdReused`` when the boot opens under an id that another owner has. A boot whose item is gone is not opened
    again by a beat: that would take back a verdict on it.
    """
    if request.boot is not None:
        _open(table, request, _first_attributes(request, request.boot, locations, now))
    groups = request.process_groups
    answer = beat(
        table,
        request.boot_id,
        request.owner_token,
        now,
        None if groups is None else {run: group.model_dump() for run, group in groups.items()},
    )
    return Heartbeat(
        boot_partition=partition_of(request.boot_id),
        cancels=dict(answer.cancels),
        revoked_claims=sorted(answer.revoked_claims),
        lost=answer.lost,
    )


def _open(table: LeaseTable, request: HeartbeatRequest, attributes: Mapping[str, Any]) -> None:
    key = key_of(request.boot_id, partition_of(request.boot_id))
    refusal = table.put_new(*key, attributes)
    item = None if refusal is None else refusal.item or table.get(*key)
    if item is not None and item["owner_token"] != request.owner_token:
        raise IdReused.of_field("boot_id", "this boot has another owner; start again with a new boot id")


def _first_attributes(
    request: HeartbeatRequest, boot: BootFacts, locations: Sequence[str], now: datetime
) -> dict[str, Any]:
    return {
        **boot.model_dump(),
        "started_ref": boot.started_ref or "",
        "owner_token": request.owner_token,
        "counter": 0,
        "locations": list(locations),
        "process_groups": {},
        "cancel": {},
        "revoked": {},
        "tidy_at": tidy_at(now),
    }
