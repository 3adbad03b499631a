"""The command ``tidemill``: one module per noun.

Invariants: with ``--json`` stdout holds exactly one JSON document and nothing else; progress, warnings and errors go
to stderr; an id that a repeat needs is shown before it is sent; the exit code says which of refused, failed, unknown and
undelivered it was (scheduler.md 18). ``--help`` and ``compile`` import base dependencies and typer only.

Start reading at ``entry.py``, then ``command.py`` (what every command shares) and any noun.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's) and return its exit code."""
    from .entry import run

    return run(arguments)
