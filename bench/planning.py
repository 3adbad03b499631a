"""The cost of the next occurrence of a cron expression: ours, and that of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from chalicelib.cron import next_after

from .document import Figure, rounded, say
from .expressions import EXPRESSIONS
from .peer_programs.stopwatch import measure
from .peers import PeerUnavailable, peers_of

QUESTION: Mapping[str, Any] = {
    "cases": EXPRESSIONS,
    "start": datetime(2026, 1, 15, 10, 7, 30, tzinfo=UTC).isoformat(),
    "steps": 200,
    "repeats": 5,
}


def compare() -> tuple[dict[str, Figure], dict[str, Figure], dict[str, Figure]]:
    """Figures, peers and ratios."""
    say("planning: ours")
    ours = measure(_begin, **QUESTION)
    mine = float(str(ours["microseconds_per_next"]))
    peers: dict[str, Figure] = {}
    ratios: dict[str, Figure] = {}
    for peer in peers_of("ticks"):
        say(f"planning: {peer.name}")
        try:
            theirs = peer.answer(QUESTION)
        except PeerUnavailable as reason:
            peers |= {f"{peer.name}_microseconds_per_next": None, f"{peer.name}_reason": str(reason)}
            ratios[peer.name] = None
            continue
        peers |= _figures_of(peer.name, peer.version, theirs, ours)
        ratios[peer.name] = rounded(theirs["microseconds_per_next"] / mine)
    return {"microseconds_per_next": rounded(mine), "expressions": len(EXPRESSIONS)}, peers, ratios


def _figures_of(name: str, version: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Figure]:
    same = sum(one == other for one, other in zip(theirs["last"], ours["last"], strict=True))
    return {
        f"{name}_microseconds_per_next": rounded(theirs["microseconds_per_next"]),
        f"{name}_same_occurrences": same,
        f"{name}_version": version,
    }


def _begin(cron: str, zone: str, first: datetime) -> Callable[[], datetime]:
    """As the scheduler does: the function and the last occurrence, with no iterator in between."""
    last = [first]

    def step() -> datetime:
        due = next_after(cron, zone, last[0])
        if due is None:
            raise RuntimeError(f"{cron} has no occurrence after {last[0]}")
        last[0] = due
        return due

    return step
