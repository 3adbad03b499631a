"""The part of DynamoDB's expressions that we use, computed for real.

Conditions: ``AND``, ``OR``, ``NOT``, parentheses, ``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=``, ``attribute_exists``,
``attribute_not_exists``. Updates: ``SET path = operand [+|- operand]``, ``if_not_exists``, ``REMOVE path``. Anything else
raises, so that a new form is noticed rather than taken for true.
"""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

_TOKEN = re.compile(r"\s*(<=|>=|<>|[()=<>,+.-]|[#:]?[A-Za-z_][A-Za-z0-9_]*)")
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ABSENT = object()
Path = tuple[str, ...]


class ExpressionError(ValueError):
    """DynamoDB would refuse the expression, or this part of it is not simulated."""


class _Reader:
    """A text of tokens, read from the left, over one item."""

    def __init__(self, text: str, names: Mapping[str, str], values: Mapping[str, Any], item: Mapping[str, Any]) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._names = names
        self._values = values
        self.item = item

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.peek().upper() == token:
            self._at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise ExpressionError(f"expected {token!r}, found {self.peek()!r}")

    def path(self) -> Path:
        parts = [self._name(self.next())]
        while self.accept("."):
            parts.append(self._name(self.next()))
        return tuple(parts)

    def operand(self) -> Any:
        if self.peek().startswith(":"):
            return self._values[self.next()]
        if self.accept("IF_NOT_EXISTS"):
            self.expect("(")
            found = lookup(self.item, self.path())
            self.expect(",")
            other = self.operand()
            self.expect(")")
            return other if found is _ABSENT else found
        return lookup(self.item, self.path())

    def _name(self, token: str) -> str:
        return self._names[token] if token.startswith("#") else token


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(f"cannot read {text[at:]!r}")
        found.append(match[1])
        at = match.end()
    return found


def lookup(item: Mapping[str, Any], path: Path) -> Any:
    """The value at a path, or a mark that there is none."""
    value: Any = item
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            return _ABSENT
        value = value[part]
    return value


def condition_holds(text: str, names: Mapping[str, str], values: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
    """Whether the condition is true of the item (an empty one where there is none)."""
    reader = _Reader(text, names, values, item)
    result = _any_of(reader)
    if reader.peek():
        raise ExpressionError(f"cannot read from {reader.peek()!r}")
    return result


def _any_of(reader: _Reader) -> bool:
    result = _all_of(reader)
    while reader.accept("OR"):
        result = _all_of(reader) or result
    return result


def _all_of(reader: _Reader) -> bool:
    result = _one(reader)
    while reader.accept("AND"):
        result = _one(reader) and result
    return result


def _one(reader: _Reader) -> bool:
    if reader.accept("NOT"):
        return not _one(reader)
    if reader.accept("("):
        result = _any_of(reader)
        reader.expect(")")
        return result
    for word, wanted in (("ATTRIBUTE_EXISTS", True), ("ATTRIBUTE_NOT_EXISTS", False)):
        if reader.accept(word):
            reader.expect("(")
            found = lookup(reader.item, reader.path()) is not _ABSENT
            reader.expect(")")
            return found is wanted
    left, comparison, right = reader.operand(), reader.next(), reader.operand()
    # a comparison with an absent attribute is false, the unequal one too
    return left is not _ABSENT and right is not _ABSENT and _COMPARISONS[comparison](left, right)


def updated(text: str, names: Mapping[str, str], values: Mapping[str, Any], item: Mapping[str, Any]) -> dict[str, Any]:
    """The item after the update; every operand is read from the item before it."""
    reader = _Reader(text, names, values, item)
    after: dict[str, Any] = copy.deepcopy(dict(item))
    while reader.peek():
        if reader.accept("SET"):
            _each(reader, lambda: _set(reader, after))
        elif reader.accept("REMOVE"):
            _each(reader, lambda: _remove(reader, after))
        else:
            raise ExpressionError(f"cannot read from {reader.peek()!r}")
    return after


def _each(reader: _Reader, clause: Callable[[], None]) -> None:
    clause()
    while reader.accept(","):
        clause()


def _set(reader: _Reader, after: dict[str, Any]) -> None:
    path = reader.path()
    reader.expect("=")
    value = reader.operand()
    if reader.peek() in {"+", "-"}:
        sign = 1 if reader.next() == "+" else -1
        value = value + sign * reader.operand()
    if value is _ABSENT:
        raise ExpressionError(f"no value for {'.'.join(path)}")
    _parent(after, path)[path[-1]] = copy.deepcopy(value)


def _remove(reader: _Reader, after: dict[str, Any]) -> None:
    path = reader.path()
    if lookup(after, path[:-1]) is not _ABSENT:
        _parent(after, path).pop(path[-1], None)


def _parent(item: dict[str, Any], path: Path) -> dict[str, Any]:
    parent = lookup(item, path[:-1]) if len(path) > 1 else item
    if not isinstance(parent, dict):
        raise ExpressionError(f"{'.'.join(path[:-1])} is no map")
    return parent
