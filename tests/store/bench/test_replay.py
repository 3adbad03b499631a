"""The soak's check finds what it is there to find: each rule is broken once in an otherwise good history."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from bench.replay import Replay
from tests.simulation.answers import Answers
from tests.simulation.violations import Violation
from tests.store.world import World, watch_the_door

SLOTS = 200


class Soaked:
    """A short history by the real services, with a warehouse's log beside it."""

    def __init__(self, world: World, store_url: str, log: Path) -> None:
        self.world = world
        self.answers = Answers()
        self._url = store_url
        self._log = log

    def run(self, job: str = "orders") -> str:
        """One run from the request to its end."""
        run_id, claim_id = self.begin(job)
        self.finish(run_id, claim_id)
        return run_id

    def begin(self, job: str = "orders") -> tuple[str, str]:
        """A run whose program has begun."""
        run_id = self.world.request(job)
        self.answers.record("request", run_id, {"run_id": run_id})
        self.world.run_pass()
        claim_id = self.world.start(run_id)
        self.tell("begin", run_id, claim_id)
        return run_id, claim_id

    def finish(self, run_id: str, claim_id: str) -> None:
        """Its program and then the run end."""
        self.tell("end", run_id, claim_id)
        self.world.finish(run_id, claim_id)

    def tell(self, what: str, run_id: str, claim_id: str) -> None:
        """A line of the warehouse's log."""
        told = {"at": time.time(), "what": what, "run_id": run_id, "claim_id": claim_id, "relations": ["a"]}
        with self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(told) + "\n")

    def forge(self, text: str, *values: object) -> None:
        """Write into the history what nobody could have done."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(text.encode(), values)

    def check(self) -> int:
        """What the soak does at its end."""
        with psycopg.connect(self._url, autocommit=True, row_factory=dict_row) as connection:
            return Replay(connection, self._log, self.answers, slots=SLOTS).check()


@pytest.fixture
def soaked(application_url: str, owner_url: str, store_url: str, tmp_path: Path) -> Iterator[Soaked]:
    watch_the_door(owner_url)
    world = World(application_url, container_slots=SLOTS)
    world.target()
    world.open_boot()
    world.publish({"orders": {"relations": ["a"]}, "sales": {"relations": ["a"]}})
    yield Soaked(world, store_url, tmp_path / "log")
    world.close()


def test_a_good_history_passes(soaked: Soaked) -> None:
    soaked.run()
    soaked.run("sales")
    assert soaked.check() >= 12


def test_two_programs_at_one_relation_are_found(soaked: Soaked) -> None:
    run_id, claim_id = soaked.begin()
    soaked.tell("clash", run_id, claim_id)
    soaked.finish(run_id, claim_id)
    with pytest.raises(Violation, match=r"C3: .* locked by another writer"):
        soaked.check()


def test_a_run_begun_twice_is_found(soaked: Soaked) -> None:
    run_id, claim_id = soaked.begin()
    soaked.tell("begin", run_id, claim_id)
    soaked.finish(run_id, claim_id)
    with pytest.raises(Violation, match=r"C3: .* begun twice"):
        soaked.check()


def test_a_program_that_outlives_its_run_is_found(soaked: Soaked) -> None:
    run_id, claim_id = soaked.begin()
    soaked.world.finish(run_id, claim_id)
    soaked.tell("end", run_id, claim_id)
    with pytest.raises(Violation, match=r"C3: .* is succeeded, and its program told"):
        soaked.check()


def test_two_holders_of_one_relation_are_found(soaked: Soaked) -> None:
    """The end of the first is written behind the claim of the second, as if that had not waited for it."""
    first = soaked.run()
    soaked.run("sales")
    soaked.forge(
        "WITH gone AS (DELETE FROM run_events WHERE run_id = %s AND kind = 'ended' RETURNING *) "
        "INSERT INTO run_events (event_id, run_id, kind, occurred_at, payload) "
        "SELECT event_id, run_id, kind, occurred_at, payload FROM gone",
        first,
    )
    with pytest.raises(Violation, match="C3: one relation is held twice"):
        soaked.check()


def test_a_run_that_never_ends_is_found(soaked: Soaked) -> None:
    soaked.begin()
    with pytest.raises(Violation, match=r"C6: .* have not ended"):
        soaked.check()


def test_a_slot_that_leaked_is_found(soaked: Soaked) -> None:
    run_id = soaked.run()
    soaked.forge("INSERT INTO slots VALUES ('default', %s, 1)", run_id)
    with pytest.raises(Violation, match="C4: nothing runs, and slots holds"):
        soaked.check()


def test_an_answered_request_without_a_run_is_found(soaked: Soaked) -> None:
    soaked.run()
    soaked.answers.record("request", "run_lost", {"run_id": "run_lost"})
    with pytest.raises(Violation, match="C8: request run_lost was answered"):
        soaked.check()


def test_a_success_without_a_program_is_found(soaked: Soaked) -> None:
    run_id = soaked.world.request("orders")
    soaked.world.run_pass()
    soaked.world.finish(run_id, soaked.world.start(run_id))
    with pytest.raises(Violation, match=r"C5: .* its program was never started"):
        soaked.check()


def test_a_state_that_may_not_follow_is_found(soaked: Soaked) -> None:
    run_id = soaked.run()
    soaked.forge("DELETE FROM run_events WHERE run_id = %s AND kind = 'claimed'", run_id)
    with pytest.raises(Violation, match=r"C5: .* went from queued to running"):
        soaked.check()
