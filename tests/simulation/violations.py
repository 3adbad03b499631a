"""What a checker finds."""

from __future__ import annotations


class Violation(Exception):  # noqa: N818 - a finding of a checker, not an error
    """A rule was broken: which checker saw it, and what it saw."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker
