"""A change of a target's warehouse and a claim on it exclude each other (scheduler.md 7.3)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from chalicelib.kernel.errors import HasLiveClaims
from chalicelib.locations import LocationService, TargetSettings
from tests.store.world import World

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
def world(application_url: str) -> Iterator[World]:
    made = World(application_url)
    made.target()
    made.publish({"orders": {"relations": ["main.orders"]}})
    yield made
    made.close()


def test_target_that_is_being_changed_gets_no_claim_until_that_is_done(world: World, application_url: str) -> None:
    world.request("orders")
    with psycopg.connect(application_url) as changing:
        # as a change of settings does, with its transaction still open
        changing.execute("SELECT FROM targets FOR UPDATE")
        changing.execute("UPDATE targets SET warehouse = 'other'")
        assert world.run_pass() == []
    assert len(world.run_pass()) == 1
    assert [row["warehouse"] for row in world.sql("SELECT warehouse FROM write_claims")] == ["other"]


def test_change_waits_for_a_claim_that_is_being_made_and_then_sees_it(world: World, application_url: str) -> None:
    run_id = world.request("orders")
    locations = LocationService(world.database, world.domains.lowering)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(application_url) as claiming:
        # as the claim pass does, with its transaction still open
        claiming.execute("SELECT FROM targets FOR KEY SHARE")
        claiming.execute("INSERT INTO write_claims VALUES ('cafe/dev', 'main.orders', %s, NULL)", [run_id])
        change = pool.submit(locations.set_target, "cafe", "dev", TargetSettings(warehouse="other"))
        while not world.sql(WAITING):
            assert not change.done()
        claiming.commit()
        with pytest.raises(HasLiveClaims):
            change.result(10)


def test_publication_and_claim_do_not_hold_each_other_up(world: World, application_url: str) -> None:
    world.request("orders")
    with psycopg.connect(application_url) as publishing:
        publishing.execute("SELECT FROM targets FOR NO KEY UPDATE")
        assert len(world.run_pass()) == 1
