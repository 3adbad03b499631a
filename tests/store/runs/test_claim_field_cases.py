"""What others' users reported about slots and locks, decided by the claim and its rows alone."""

from __future__ import annotations

import pytest

from chalicelib.kernel.errors import ClaimEnded
from chalicelib.runs.model import StartRequest
from tests.store.world import BOOT, World, terminal


def held(world: World) -> dict[str, str]:
    return {row["relation"]: row["run_id"] for row in world.sql("SELECT relation, run_id FROM write_claims")}


def test_what_comes_after_the_end_changes_nothing(world: World) -> None:
    """BR-085: a claim is used once more a moment after its run has ended and its slot has gone to another one."""
    world.publish(
        {"one": {"pools": [{"name": "default", "weight": 10}]}, "two": {"pools": [{"name": "default", "weight": 10}]}}
    )
    first, second = world.request("one"), world.request("two")
    world.run_pass()
    claim_id = world.start(first)
    world.finish(first, claim_id)
    world.run_pass()
    events = world.sql("SELECT count(*) AS n FROM run_events WHERE run_id = %s", first)
    with pytest.raises(ClaimEnded):
        world.runs.start(first, claim_id, StartRequest(boot_id=BOOT))
    with pytest.raises(ClaimEnded):
        world.accept(first)
    assert (world.state(first), world.state(second)) == ("succeeded", "claimed")
    assert world.sql("SELECT run_id FROM slots WHERE pool = 'default'") == [{"run_id": second}]
    assert world.sql("SELECT count(*) AS n FROM run_events WHERE run_id = %s", first) == events


def test_a_relation_is_not_given_away_while_its_holder_may_still_write(world: World) -> None:
    """BR-086: silent is not gone; once it is proved gone its warehouse gets its settle time, and what it says is refused."""
    world.sql("UPDATE targets SET settle_seconds = 60")
    world.publish({"one": {"relations": ["a"]}, "two": {"relations": ["a"]}})
    first, second = world.request("one"), world.request("two")
    world.run_pass()
    claim_id = world.start(first)
    world.sql("UPDATE runs SET heartbeat_lost_at = clock_timestamp() - interval '1 day' WHERE run_id = %s", first)
    world.run_pass()
    assert (held(world), world.state(second)) == ({"a": first}, "queued")
    assert world.runs.boot_ended(BOOT).runs == [first]
    world.run_pass()
    assert (held(world), world.state(second)) == ({"a": first}, "queued")
    with pytest.raises(ClaimEnded):
        world.runs.report(first, claim_id, terminal("succeeded"))
    world.sql("UPDATE write_claims SET release_after = clock_timestamp() - interval '1 second'")
    world.run_pass()
    assert (held(world), world.state(second)) == ({"a": second}, "claimed")
    assert world.state(first) == "failed"


def test_two_jobs_that_share_one_relation_take_turns(world: World) -> None:
    """BR-098: the second waits for the one that it lacks and takes both together."""
    world.publish({"full": {"relations": ["items", "orders"]}, "part": {"relations": ["items", "returns"]}})
    full, part = world.request("full"), world.request("part")
    world.run_pass()
    assert held(world) == {"items": full, "orders": full}
    (blocker,) = world.runs.why(part).blockers
    assert blocker.clears_when == f"run {full} (claimed) ends and releases items"
    world.finish(full, world.start(full))
    world.run_pass()
    assert held(world) == {"items": part, "returns": part}
