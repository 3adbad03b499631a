"""Opening and closing alerts: one row for one lasting condition (scheduler.md 6.4, S24)."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chalicelib.alerts import AlertFact, close_alerts, open_alerts
from tests.store.world import World

SKEW = AlertFact("clock_skew", "0", {"seconds": 9.0})


def rows(world: World) -> list[dict[str, Any]]:
    return world.sql(
        "SELECT condition, subject, episode, detail, closed_at IS NULL AS open FROM platform_alerts ORDER BY condition, subject, episode"
    )


def opened(world: World, *facts: AlertFact) -> int:
    return world.database.write(lambda tx: open_alerts(tx, facts))


def closed(world: World, fact: AlertFact) -> int:
    return world.database.write(lambda tx: close_alerts(tx, fact.condition, [fact.subject]))


def test_a_condition_seen_again_keeps_its_first_row(world: World) -> None:
    assert opened(world, SKEW) == 1
    assert opened(world, AlertFact("clock_skew", "0", {"seconds": 11.0})) == 0
    assert rows(world) == [
        {"condition": "clock_skew", "subject": "0", "episode": "1", "detail": {"seconds": 9.0}, "open": True}
    ]


def test_a_condition_without_an_id_of_its_own_gets_the_next_number_when_it_returns(world: World) -> None:
    for _ in range(11):
        opened(world, SKEW)
        assert closed(world, SKEW) == 1
    opened(world, SKEW)
    assert sorted(int(row["episode"]) for row in rows(world)) == list(range(1, 13))
    assert sum(row["open"] for row in rows(world)) == 1


def test_an_episode_with_an_id_of_its_own_is_opened_again(world: World) -> None:
    fact = AlertFact("run_lost", "run_1", {}, "clm_1")
    opened(world, fact)
    closed(world, fact)
    assert opened(world, fact) == 1
    assert [(row["episode"], row["open"]) for row in rows(world)] == [("clm_1", True)]


def test_of_two_episodes_of_one_subject_only_one_is_open(world: World) -> None:
    opened(world, AlertFact("run_lost", "run_1", {}, "clm_1"))
    assert opened(world, AlertFact("run_lost", "run_1", {}, "clm_2")) == 0
    assert closed(world, AlertFact("run_lost", "run_1")) == 1
    assert opened(world, AlertFact("run_lost", "run_1", {}, "clm_2")) == 1
    assert opened(world, AlertFact("run_lost", "run_1", {}, "clm_1")) == 0
    assert [(row["episode"], row["open"]) for row in rows(world)] == [("clm_1", False), ("clm_2", True)]


def test_the_same_fact_twice_in_one_set_is_one_alert(world: World) -> None:
    assert opened(world, SKEW, SKEW) == 1


def test_closing_what_is_not_open_changes_nothing(world: World) -> None:
    assert closed(world, SKEW) == 0
    opened(world, SKEW)
    assert closed(world, AlertFact("clock_skew", "1")) == 0
    assert rows(world)[0]["open"]


def test_nothing_to_open_or_close_sends_no_statement(world: World) -> None:
    before = world.database.statements
    assert world.database.write(lambda tx: open_alerts(tx, []) + close_alerts(tx, "clock_skew", [])) == 0
    assert world.database.statements == before


def test_any_number_of_facts_costs_two_statements(world: World) -> None:
    before = world.database.statements
    assert opened(world, *(AlertFact("run_waiting", f"run_{n}", {}, f"run_{n}") for n in range(500))) == 500
    assert world.database.statements - before == 2


def test_writers_that_see_the_same_at_once_make_one_row(world: World) -> None:
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda _: opened(world, SKEW, AlertFact("run_lost", "r", {}, "c")), range(16)))
    assert sum(counts) == 2
    assert len(rows(world)) == 2


@pytest.mark.parametrize("seed", range(8))
def test_a_lasting_condition_is_one_row_however_often_it_is_seen(world: World, seed: int) -> None:
    """S24, against a model: any sequence of seeing, not seeing and seeing again."""
    chance = random.Random(seed)
    facts = [AlertFact("clock_skew", "0"), AlertFact("scheduler_late", "0"), AlertFact("run_lost", "r", {}, "c")]
    starts = dict.fromkeys(range(len(facts)), 0)
    lasting: set[int] = set()
    for _ in range(60):
        seen = {at for at in range(len(facts)) if chance.random() < 0.6}
        for at in seen - lasting:
            starts[at] += 1
        opened(world, *(facts[at] for at in chance.sample(sorted(seen), len(seen))))
        for at in set(range(len(facts))) - seen:
            closed(world, facts[at])
        lasting = seen
        found = rows(world)
        assert {row["condition"] for row in found if row["open"]} == {facts[at].condition for at in lasting}
        for at, fact in enumerate(facts):
            count = sum(row["condition"] == fact.condition for row in found)
            assert count == (min(starts[at], 1) if fact.episode else starts[at])
