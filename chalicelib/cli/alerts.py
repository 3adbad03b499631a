"""``tidemill alerts``: what the platform tells people without being asked."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .command import Session, command, noun
from .options import Cursor, Limit
from .output import Outcome, Table
from .views import chosen

_app = noun("alerts", "Alerts: what went wrong, or takes too long, without anybody asking.")

All = Annotated[bool, typer.Option("--all", help="Also those whose condition has ended.")]
Condition = Annotated[
    str | None, typer.Option("--condition", metavar="NAME", help="Only this condition, such as run_waiting.")
]


def add_to(app: typer.Typer) -> None:
    """Add ``alerts``."""
    app.add_typer(_app)


@command(_app, "list")
def list_alerts(
    session: Session, every: All = False, condition: Condition = None, limit: Limit = None, cursor: Cursor = None
) -> Outcome:
    """List the alerts that are open, newest first, one page."""
    query: dict[str, Any] = {"condition": condition, "limit": limit, "cursor": cursor}
    if not every:
        query["open"] = "true"
    page = session.api.call("GET", "/alerts", query=query).body
    if page.get("next_cursor"):
        session.say(f"there are more: --cursor {page['next_cursor']}")
    columns = ("first_seen_at", "condition", "subject", "closed_at", "detail")
    return Outcome(
        page, [Table(*chosen(columns, page["items"]), empty="no alert is open" if not every else "no alerts")]
    )
