"""A world of its own for each test, in the summer after what is made up for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from chalicelib.backfills.model import BackfillRequest, BackfillView
from tests.doubles import HandClock
from tests.store.world import World, schedule, watch_the_door

BACKFILL = "bkf_0000000000000001"
DAILY = schedule("0 6 * * *", name="orders/schedule")


class BackfillWorld(World):
    """A world whose backfills are those of the job ``orders``."""

    def begin(self, first: str = "2026-01-01", until: str = "2026-01-11", **more: Any) -> BackfillView:
        fields = {
            "backfill_id": BACKFILL, "location": "cafe", "target": "dev", "job": "orders", "over": "occurrences",
            "from": first, "to": until, **more,
        }  # fmt: skip
        view, _ = self.domains.backfills.start(BackfillRequest.model_validate(fields), "tester")
        return view

    def shown(self, backfill_id: str = BACKFILL) -> BackfillView:
        return self.domains.backfills.backfill(backfill_id)

    def active(self) -> list[str]:
        rows = self.sql("SELECT run_id FROM runs WHERE status IN ('claimed', 'running') ORDER BY scheduled_for, run_id")
        return [row["run_id"] for row in rows]

    def succeed(self, run_id: str) -> None:
        self.finish(run_id, self.start(run_id))

    def drain(self, limit: int = 100) -> list[str]:
        """Let every run succeed as soon as it is claimed; the occurrences in the order in which they began."""
        began: list[str] = []
        for _ in range(limit):
            claimed = self.run_pass()
            for run_id in self.active():
                self.succeed(run_id)
            began += [row["item"] for row in self.sql(
                "SELECT i.item FROM backfill_items i JOIN claims c ON c.run_id = i.run_id "
                "WHERE c.claim_id = ANY(%s) ORDER BY i.item", claimed)]  # fmt: skip
            if not claimed and self.shown().finished_at is not None:
                return began
        raise AssertionError("the backfill does not end")


@pytest.fixture
def hand() -> HandClock:
    return HandClock(datetime(2026, 7, 1, 12, tzinfo=UTC))


@pytest.fixture
def world(application_url: str, owner_url: str, hand: HandClock) -> Iterator[BackfillWorld]:
    watch_the_door(owner_url)
    made = BackfillWorld(application_url, clock=hand)
    made.target()
    made.open_boot()
    yield made
    made.close()
