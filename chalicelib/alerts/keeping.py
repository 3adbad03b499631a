"""Opening and closing alerts: two statements and one, whatever the number of facts."""

from __future__ import annotations

from collections.abc import Sequence

from ..database import Transaction, load_queries
from ..database.connection import json_rows
from .model import AlertFact, Condition

QUERIES = load_queries(__package__)


def open_alerts(tx: Transaction, facts: Sequence[AlertFact]) -> int:
    """Keep one open row per condition and subject; returns how many were opened, not those that were open already.

    A fact with an own episode opens that very row, again if it was closed; one without gets the next number when its
    condition returns. Two writers that see the same thing at once make one row.
    """
    if not facts:
        return 0
    rows = json_rows(
        [
            {"condition": f.condition, "subject": f.subject, "detail": dict(f.detail), "episode": f.episode}
            for f in facts
        ]
    )
    return tx.execute(QUERIES["reopen_alerts"], rows=rows) + tx.execute(QUERIES["open_alerts"], rows=rows)


def close_alerts(tx: Transaction, condition: Condition, subjects: Sequence[str]) -> int:
    """Close the open alerts of one condition about these subjects; returns how many there were."""
    if not subjects:
        return 0
    return tx.execute(QUERIES["close_alerts"], condition=condition, subjects=list(subjects))
