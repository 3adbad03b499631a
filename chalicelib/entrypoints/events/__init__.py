"""One module per Lambda that an event starts.

Each module is deployed by its own path: ``app.py`` is not imported, so a handler wires what it needs itself, and what
Chalice adds to an application does not run. The body of each is a function of the services and the plain event, which
the local event pump calls too. Start reading at ``tick.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chalice.app import Blueprint


def blueprints() -> list[Blueprint]:
    """What the packager must find."""
    from . import dead_letter, due_tick, recovery, task_events, tick

    return [tick.blueprint, due_tick.blueprint, recovery.blueprint, dead_letter.blueprint, task_events.blueprint]
