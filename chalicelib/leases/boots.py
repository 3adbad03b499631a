"""The lease item of one boot: what its owner writes, and what the server reads and signals (scheduler.md 9).

One item per boot, not per run. The reply of a beat is the channel for the cancel signals and the revocations of all
runs of the boot.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from ..cloud.ports import LeaseTable, Refusal
from ..kernel.clock import Clock
from ..kernel.errors import Unavailable
from ..kernel.limits import BOOT_PARTITIONS, LEASE_SECONDS, LEASE_TIDY_SECONDS
from .machine import MachineIdentity

WHOLE_BOOT = "*"
_MINE = "owner_token = :owner"
_EXISTS = "attribute_exists(pk)"


def partition_of(boot_id: str) -> int:
    """The fixed partition of a boot, 0 to 15."""
    return hashlib.sha256(boot_id.encode()).digest()[0] % BOOT_PARTITIONS


def key_of(boot_id: str, partition: int) -> tuple[str, str]:
    """Partition key and sort key of a boot's item."""
    return f"boots#{partition}", f"boot#{boot_id}"


# --- the server's side


def lease_is_open(table: LeaseTable, boot_id: str, partition: int) -> bool:
    """Whether the boot has an item that is not revoked as a whole."""
    item = table.get(*key_of(boot_id, partition))
    return item is not None and WHOLE_BOOT not in item["revoked"]


def signal_cancel(table: LeaseTable, boot_id: str, partition: int, run_id: str, cancel_id: str) -> bool:
    """Ask the boot to cancel a run, by its next beat; ``False`` when the boot has no item. Repeating changes nothing."""
    return _mark(table, key_of(boot_id, partition), "cancel", run_id, cancel_id)


def revoke(table: LeaseTable, boot_id: str, partition: int, claim_id: str = WHOLE_BOOT) -> bool:
    """Tell the boot to stop the work of a claim, or all of it; ``False`` when the boot has no item."""
    return _mark(table, key_of(boot_id, partition), "revoked", claim_id, True)


def _mark(table: LeaseTable, key: tuple[str, str], attribute: str, name: str, value: object) -> bool:
    answer = table.update(
        *key,
        expression="SET #map.#name = :value",
        condition=_EXISTS,
        names={"#map": attribute, "#name": name},
        values={":value": value},
    )
    return not isinstance(answer, Refusal)


def boots_of_machine(table: LeaseTable, machine_id: str) -> list[Mapping[str, Any]]:
    """The items of all boots on one machine, whoever owns them, by consistent reads of every partition."""
    items = (item for partition in range(BOOT_PARTITIONS) for item in table.partition(f"boots#{partition}"))
    return [item for item in items if item.get("machine_id") == machine_id]


def boot_id_of(item: Mapping[str, Any]) -> str:
    """Whose item it is."""
    return str(item["sk"]).removeprefix("boot#")


# --- the owner's side


class LeaseClosed(RuntimeError):  # noqa: N818 - a state, not an error
    """A call on a lease that its owner has closed; a mistake in our own code."""


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """What a beat brought back.

    ``lost`` is why the lease is no longer ours: ``gone``, ``taken`` or ``revoked``; then all work must stop.
    """

    cancels: Mapping[str, str] = field(default_factory=dict)
    revoked_claims: frozenset[str] = frozenset()
    lost: Literal["gone", "taken", "revoked"] | None = None


def beat(
    table: LeaseTable,
    boot_id: str,
    owner_token: str,
    now: datetime,
    process_groups: Mapping[str, Mapping[str, int]] | None = None,
) -> BeatAnswer:
    """One beat of the boot that ``owner_token`` owns: one conditional update of its counter, and what that brings back.

    ``process_groups`` replaces those of the item. A refused condition is settled by a consistent read (S9).
    """
    key = key_of(boot_id, partition_of(boot_id))
    groups = {} if process_groups is None else {":groups": {run: dict(g) for run, g in process_groups.items()}}
    answer = table.update(
        *key,
        expression="SET #counter = #counter + :one, tidy_at = :tidy_at"
        + (", process_groups = :groups" if groups else ""),
        condition=_MINE,
        names={"#counter": "counter"},
        values={":one": 1, ":tidy_at": tidy_at(now), ":owner": owner_token, **groups},
    )
    if not isinstance(answer, Refusal):
        return _read(answer)
    item = table.get(*key)
    if item is None:
        return BeatAnswer(lost="gone")
    return _read(item) if item["owner_token"] == owner_token else BeatAnswer(lost="taken")


def tidy_at(now: datetime) -> int:
    """When the item may be tidied away, in whole seconds since 1970; it decides nothing else (S8)."""
    return int((now + timedelta(seconds=LEASE_TIDY_SECONDS)).timestamp())


class BootLease:
    """The owner of one boot's item. Safe to share between threads; every call after ``close()`` is refused.

    ``table`` serves the work; ``beat_table`` has a connection pool of its own and serves beats only.
    """

    def __init__(
        self,
        table: LeaseTable,
        beat_table: LeaseTable,
        *,
        boot_id: str,
        owner_token: str,
        identity: MachineIdentity,
        kind: Literal["lambda", "container"],
        locations: Sequence[str],
        clock: Clock,
        lease_seconds: int = LEASE_SECONDS,
        started_ref: str | None = None,
    ) -> None:
        self.boot_id = boot_id
        self.partition = partition_of(boot_id)
        self.lease_seconds = lease_seconds
        self._table = table
        self._beat_table = beat_table
        self._owner_token = owner_token
        self._identity = identity
        self._kind = kind
        self._locations = list(locations)
        self._clock = clock
        self._started_ref = started_ref
        self._lock = threading.Lock()
        self._state: Literal["new", "open", "closed"] = "new"

    def open(self) -> None:
        """Put the item. An item that is ours already (a lost reply) is fine; another owner's raises ``Unavailable``."""
        refusal = self._table.put_new(*self._key(), self._first_attributes())
        if refusal is not None and not self._owns(refusal.item or self._table.get(*self._key())):
            raise Unavailable(f"boot {self.boot_id} has another owner; start the worker again")
        with self._lock:
            self._state = "open"

    def beat(self) -> BeatAnswer:
        """One conditional update of the counter. Raises what the table raises; that is no reason to stop work."""
        self._check_open()
        return beat(self._beat_table, self.boot_id, self._owner_token, self._clock.now())

    def record_group(self, run_id: str, group: int, started: int) -> None:
        """Note the process group (its leader's pid and start time) of a run's child, before the child does anything.

        Raises ``LeaseLost`` when the item is no longer ours: then the child must not start.
        """
        self._change("SET process_groups.#run = :group", run_id, {":group": {"pgid": group, "started": started}})

    def forget_group(self, run_id: str) -> None:
        """The child and everything it started are reaped."""
        self._change("REMOVE process_groups.#run, cancel.#run", run_id, {})

    def close(self) -> None:
        """Delete the item if it is ours; once. The beat thread must have ended before.

        Its connection is used, since it gives up early: a stop must end in time.
        """
        with self._lock:
            was_open, self._state = self._state == "open", "closed"
        if was_open:
            self._beat_table.delete(*self._key(), owner_token=self._owner_token)

    def _change(self, expression: str, run_id: str, values: Mapping[str, Any]) -> None:
        self._check_open()
        answer = self._table.update(
            *self._key(),
            expression=expression,
            condition=_MINE,
            names={"#run": run_id},
            values={":owner": self._owner_token, **values},
        )
        if isinstance(answer, Refusal):
            raise LeaseLost(f"the lease of boot {self.boot_id} is gone or has another owner")

    def _first_attributes(self) -> dict[str, Any]:
        return {
            "owner_token": self._owner_token,
            "counter": 0,
            "kind": self._kind,
            "locations": self._locations,
            "started_ref": self._started_ref or "",
            **asdict(self._identity),
            "process_groups": {},
            "cancel": {},
            "revoked": {},
            "lease_seconds": self.lease_seconds,
            "tidy_at": tidy_at(self._clock.now()),
        }

    def _owns(self, item: Mapping[str, Any] | None) -> bool:
        return item is not None and item["owner_token"] == self._owner_token

    def _key(self) -> tuple[str, str]:
        return key_of(self.boot_id, self.partition)

    def _check_open(self) -> None:
        with self._lock:
            if self._state != "open":
                raise LeaseClosed(f"the lease of boot {self.boot_id} is {self._state}")


class LeaseLost(RuntimeError):  # noqa: N818 - a state, not an error
    """The item is gone or has another owner: nothing new may start under this boot."""


def _read(item: Mapping[str, Any]) -> BeatAnswer:
    revoked = frozenset(item["revoked"])
    return BeatAnswer(
        cancels=dict(item["cancel"]),
        revoked_claims=revoked - {WHOLE_BOOT},
        lost="revoked" if WHOLE_BOOT in revoked else None,
    )
