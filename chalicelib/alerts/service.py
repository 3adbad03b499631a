"""Reading alerts."""

from __future__ import annotations

from ..database import Database, load_queries
from ..kernel.clock import instant_text
from ..kernel.paging import Page, check_limit, cursor_instant, decode_cursor, encode_cursor
from ..kernel.records import Record
from .model import AlertView, Condition

QUERIES = load_queries(__package__)


class AlertFilter(Record):
    """Which alerts a list shows; an absent field does not restrict."""

    open: bool | None = None
    condition: Condition | None = None
    location: str | None = None
    target: str | None = None


class AlertService:
    """Alerts of one installation; they are written by the passes alone."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def alerts(self, filters: AlertFilter, limit: int | None, cursor: str | None) -> Page[AlertView]:
        """Newest first; one row more than shown tells whether a next page exists."""
        size, bound = check_limit(limit), filters.model_dump(mode="json")
        key = decode_cursor(bound, cursor, 4) if cursor else [None, None, None, None]
        with self._database.transaction() as tx:
            rows = tx.rows(
                QUERIES["list_alerts"],
                **filters.model_dump(),
                key_at=cursor_instant(key[0]) if key[0] is not None else None,
                key_condition=key[1],
                key_subject=key[2],
                key_episode=key[3],
                limit=size + 1,
            )
        shown = [AlertView(**row) for row in rows[:size]]
        more = encode_cursor(bound, _key(shown[-1])) if len(rows) > size else None
        return Page(shown, more)


def _key(alert: AlertView) -> list[str]:
    return [instant_text(alert.first_seen_at), alert.condition, alert.subject, alert.episode]
