"""DynamoDB: items by partition and sort key, with conditions and updates computed for real."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chalicelib.cloud.ports import Refusal
from chalicelib.kernel.errors import Unavailable
from tests.simulation.board import Board
from tests.simulation.expressions import condition_holds, updated

Item = dict[str, Any]


def _no_answer() -> Exception:
    return Unavailable("DynamoDB does not answer")


class SimulatedTable:
    """``cloud.ports.LeaseTable``. Every call but ``peek`` may fail or lose its reply; ``down_until`` stops it whole."""

    def __init__(self, board: Board, mutated: Mapping[str, str | None]) -> None:
        self._board = board
        self._mutated = mutated
        self.on_update: list[Callable[[str, Item | None, Item], None]] = []
        self._items: dict[tuple[str, str], Item] = {}
        self.down_until = 0.0
        self.reads = 0

    def put_new(self, pk: str, sk: str, attributes: Mapping[str, Any]) -> Refusal | None:
        with self._board.operation("put", _no_answer):
            self._check()
            if (pk, sk) in self._items:
                return Refusal(copy.deepcopy(self._items[pk, sk]))
            self._items[pk, sk] = copy.deepcopy({"pk": pk, "sk": sk, **attributes})
            for told in self.on_update:
                told(pk, None, self._items[pk, sk])
        return None

    def update(
        self,
        pk: str,
        sk: str,
        *,
        expression: str,
        condition: str | None,
        names: Mapping[str, str],
        values: Mapping[str, Any],
    ) -> Mapping[str, Any] | Refusal:
        with self._board.operation("update", _no_answer):
            self._check()
            item = self._items.get((pk, sk))
            condition = self._mutated.get(condition, condition) if condition is not None else None
            if condition is not None and not condition_holds(condition, names, values, item or {}):
                return Refusal(copy.deepcopy(item))
            self._items[pk, sk] = updated(expression, names, values, item or {"pk": pk, "sk": sk})
            self._board.trace.add(self._board.current.name, "update", pk, sk, expression)
            for told in self.on_update:
                told(pk, item, self._items[pk, sk])
            return copy.deepcopy(self._items[pk, sk])

    def get(self, pk: str, sk: str) -> Mapping[str, Any] | None:
        with self._board.operation("get", _no_answer):
            self._check()
            self.reads += 1
            return copy.deepcopy(self._items.get((pk, sk)))

    def partition(self, pk: str) -> Sequence[Mapping[str, Any]]:
        with self._board.operation("query", _no_answer):
            self._check()
            return [copy.deepcopy(item) for (key, _), item in sorted(self._items.items()) if key == pk]

    def delete(self, pk: str, sk: str, *, owner_token: str) -> bool:
        with self._board.operation("delete", _no_answer):
            self._check()
            item = self._items.get((pk, sk))
            if item is None or item["owner_token"] != owner_token:
                return False
            del self._items[pk, sk]
        return True

    def remove(self, pk: str, sk: str) -> None:
        with self._board.operation("remove", _no_answer):
            self._check()
            self._items.pop((pk, sk), None)

    def peek(self, pk: str, sk: str) -> Mapping[str, Any] | None:
        """For checkers: the item, without any fault."""
        return self._items.get((pk, sk))

    def _check(self) -> None:
        if self._board.clock.elapsed_seconds() < self.down_until:
            raise _no_answer()
