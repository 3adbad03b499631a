"""C8: the same id gets the same answer, over the whole history (S37, S46, S47)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from chalicelib.kernel.canonical import canonical_json
from tests.simulation.violations import Violation


class Answers:
    """The first answer to each id."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], str] = {}

    def record(self, kind: str, key: str, answer: object) -> None:
        """Keep the first answer, compare every later one with it."""
        text = canonical_json(answer)
        first = self._first.setdefault((kind, key), text)
        if first != text:
            raise Violation("C8", f"{kind} {key}: first {first}, then {text}")

    def refuse(self, kind: str, key: str, code: str) -> None:
        """What was answered before must not be refused now."""
        if (kind, key) in self._first:
            raise Violation("C8", f"{kind} {key}: first {self._first[kind, key]}, then refused as {code}")

    def given(self) -> Iterator[tuple[str, str, Any]]:
        """All first answers: kind, key, answer."""
        for (kind, key), text in self._first.items():
            yield kind, key, json.loads(text)
