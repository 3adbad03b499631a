"""``tidemill pools``: the slots that runs share."""

from __future__ import annotations

import typer

from ..kernel.limits import PAGE_MAX
from .command import Session, command, noun
from .output import Outcome, Table
from .views import chosen

_app = noun("pools", "Pools: the slots that runs share.")


def add_to(app: typer.Typer) -> None:
    """Add ``pools``."""
    app.add_typer(_app)


@command(_app, "list")
def list_pools(session: Session) -> Outcome:
    """List the pools: slots in all, in use and free, and which runs hold some."""
    items = list(session.api.pages("/pools", {"limit": PAGE_MAX}))
    columns = ("pool", "limit", "used", "free", "holders")
    return Outcome({"items": items, "next_cursor": None}, [Table(*chosen(columns, items), empty="no pools")])
