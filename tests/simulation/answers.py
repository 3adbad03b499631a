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
        self._of_run: dict[str, list[tuple[str, str]]] = {}
        self._forgotten: set[tuple[str, str]] = set()

    def record(self, kind: str, key: str, answer: object, *, run_id: str | None = None) -> None:
        """Keep the first answer, compare every later one with it. ``run_id`` names the run that remembers it."""
        if (kind, key) in self._forgotten:
            return
        text = canonical_json(answer)
        if run_id is not None and (kind, key) not in self._first:
            self._of_run.setdefault(run_id, []).append((kind, key))
        first = self._first.setdefault((kind, key), text)
        if first != text:
            raise Violation("C8", f"{kind} {key}: first {first}, then {text}")

    def refuse(self, kind: str, key: str, code: str) -> None:
        """What was answered before must not be refused now."""
        if (kind, key) in self._first:
            raise Violation("C8", f"{kind} {key}: first {self._first[kind, key]}, then refused as {code}")

    def forget(self, run_id: str) -> None:
        """Retention has removed the run: its ids stand for nothing any more."""
        for key in self._of_run.pop(run_id, []):
            self._first.pop(key, None)
            self._forgotten.add(key)

    def given(self) -> Iterator[tuple[str, str, Any]]:
        """All first answers: kind, key, answer."""
        for (kind, key), text in self._first.items():
            yield kind, key, json.loads(text)
