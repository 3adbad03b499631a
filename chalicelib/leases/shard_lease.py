"""The lease of one scheduler shard: who schedules (scheduler.md 5.5).

It decides who tries, never whose commit counts; that is the fence's work (``fence.py``). Each acquisition has a token of
its own, so that a refusal or a lost reply is settled by reading whose token stands in the item (S9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..cloud.ports import LeaseTable, Refusal
from ..kernel.errors import Unavailable

FREE = ""
_SORT_KEY = "lease"
_FREE_OR_ABSENT = "attribute_not_exists(pk) OR owner_token = :free"
_MINE = "owner_token = :me"
_UNCHANGED = "owner_token = :owner AND #counter = :counter"
_TAKE = (
    "SET owner_token = :me, #counter = if_not_exists(#counter, :zero) + :one, "
    "wanted = if_not_exists(wanted, :zero), epoch_seen = if_not_exists(epoch_seen, :zero)"
)
_COUNTER = {"#counter": "counter"}


class LeaseTaken(RuntimeError):  # noqa: N818 - a state, not an error
    """The lease has another owner, or none: whoever held it must stop."""


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The item as it was read: owner (empty: free), counter, wake-ups wanted, and the newest epoch that it was told.

    ``observed`` is what a recovery saw and left for whoever leads (empty: nothing).
    """

    owner: str
    counter: int
    wanted: int
    epoch_seen: int
    observed: str = ""


class ShardLease:
    """One actor's view of the lease of a shard; ``token`` is new for every acquisition."""

    def __init__(self, table: LeaseTable, shard: int, token: str) -> None:
        self._table = table
        self._key = (f"sched#{shard}", _SORT_KEY)
        self._token = token

    def read(self) -> LeaseState | None:
        """The item now, by a consistent read."""
        item = self._table.get(*self._key)
        return None if item is None else _state(item)

    def acquire(self) -> LeaseState | None:
        """Take it when it is free or absent; ``None`` when somebody holds it."""
        return self._take(_FREE_OR_ABSENT, {":free": FREE})

    def take_over(self, observed: LeaseState) -> LeaseState | None:
        """Take it from an owner that was seen not to move for a whole lease; ``None`` when it moved after all."""
        return self._take(_UNCHANGED, {":owner": observed.owner, ":counter": observed.counter})

    def renew(self) -> LeaseState:
        """Move the counter. Raises ``LeaseTaken`` when it is not ours any more."""
        state = self._change("SET #counter = #counter + :one", _MINE, {":one": 1, ":me": self._token}, _COUNTER)
        if state is None:
            raise LeaseTaken
        return state

    def note_epoch(self, epoch: int) -> LeaseState:
        """Keep the epoch where a failed-over database cannot lose it. Raises ``LeaseTaken``."""
        state = self._change("SET epoch_seen = :epoch", _MINE, {":epoch": epoch, ":me": self._token})
        if state is None:
            raise LeaseTaken
        return state

    def want(self, observed: str = "") -> LeaseState | None:
        """Ask the owner for another pass; ``None`` when there is no item, so that nobody was asked.

        ``observed`` is left in the item for that pass, in place of what an earlier one left.
        """
        if not observed:
            return self._change("SET wanted = wanted + :one", "attribute_exists(pk)", {":one": 1}, {})
        left = {":one": 1, ":observed": observed}
        return self._change("SET wanted = wanted + :one, observed = :observed", "attribute_exists(pk)", left, {})

    def forget_observed(self, observed: str) -> None:
        """Remove what was left by an earlier ``want`` and is dealt with; nothing when it is newer, or the lease another's."""
        values = {":none": "", ":observed": observed, ":me": self._token}
        self._change("SET observed = :none", f"{_MINE} AND observed = :observed", values, {})

    def release(self, wanted: int | None) -> bool:
        """Free it; ``False`` when ``wanted`` has moved and another pass is owed. ``None`` frees it whatever is wanted."""
        condition = _MINE if wanted is None else f"{_MINE} AND wanted = :wanted"
        values: dict[str, Any] = {":free": FREE, ":me": self._token}
        if wanted is not None:
            values[":wanted"] = wanted
        try:
            answer = self._table.update(
                *self._key, expression="SET owner_token = :free", condition=condition, names={}, values=values
            )
        except Unavailable:
            return not self._is_mine(self._table.get(*self._key))
        return not isinstance(answer, Refusal) or not self._is_mine(answer.item)

    def _take(self, condition: str, values: Mapping[str, Any]) -> LeaseState | None:
        return self._change(_TAKE, condition, {":me": self._token, ":zero": 0, ":one": 1, **values}, _COUNTER)

    def _change(
        self, expression: str, condition: str, values: Mapping[str, Any], names: Mapping[str, str] | None = None
    ) -> LeaseState | None:
        """One update; after a refusal or a lost reply the token in the item says whether it happened."""
        uses_counter = _COUNTER if "#counter" in expression + condition else {}
        try:
            answer = self._table.update(
                *self._key, expression=expression, condition=condition, names=names or uses_counter, values=values
            )
        except Unavailable:
            item = self._table.get(*self._key)
            if not self._is_mine(item):
                raise
            return _state(item or {})
        if isinstance(answer, Refusal):
            return _state(answer.item) if answer.item and self._is_mine(answer.item) else None
        return _state(answer)

    def _is_mine(self, item: Mapping[str, Any] | None) -> bool:
        return item is not None and item["owner_token"] == self._token


def _state(item: Mapping[str, Any]) -> LeaseState:
    return LeaseState(
        item["owner_token"], item["counter"], item["wanted"], item["epoch_seen"], item.get("observed", "")
    )
