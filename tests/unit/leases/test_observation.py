"""What may be concluded from looks at counters: silence only of a whole lease that was really watched."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.leases.observation import BootItem, Look, Observation


def item(counter: int, *, owner: str = "own", lease_seconds: int = 30) -> BootItem:
    return BootItem(owner, counter, lease_seconds)


def looked(*looks: tuple[float, Mapping[str, BootItem | None]]) -> Observation:
    """Looks at these seconds, each answered at once."""
    observation = Observation(30)
    for at, boots in looks:
        observation.add(Look(at, at, boots))
    return observation


def steady(item_or_none: BootItem | None, until: float, *, step: float = 5) -> Observation:
    return looked(*((at * step, {"b": item_or_none}) for at in range(int(until / step) + 1)))


def test_nothing_is_concluded_before_a_lease_and_its_margin() -> None:
    assert steady(item(1), 30).undecided == {"b"}
    assert steady(item(1), 35).silent == {"b": 1}


def test_a_boot_without_an_item_does_not_move() -> None:
    assert steady(None, 30).undecided == {"b"}
    assert steady(None, 35).silent == {"b": None}


def test_every_boot_is_judged_by_its_own_lease() -> None:
    assert steady(item(1, lease_seconds=10), 15).silent == {"b": 1}
    assert steady(item(1, lease_seconds=60), 60).undecided == {"b"}
    assert steady(item(1, lease_seconds=60), 65).silent == {"b": 1}


def test_whoever_moves_is_clear_at_once() -> None:
    observation = looked((0, {"b": item(1), "c": item(1)}), (5, {"b": item(2), "c": item(1)}))
    assert (observation.moved, observation.undecided) == ({"b": 2}, {"c"})


def test_an_item_that_appears_or_changes_hands_has_moved() -> None:
    assert looked((0, {"b": None}), (5, {"b": item(0)})).moved == {"b": 0}
    assert looked((0, {"b": item(7)}), (5, {"b": item(7, owner="other")})).moved == {"b": 7}


def test_an_item_that_goes_is_watched_from_then_on() -> None:
    looks = [(at * 5.0, {"b": item(1) if at < 4 else None}) for at in range(12)]
    assert looked(*looks[:11]).undecided == {"b"}
    assert looked(*looks).silent == {"b": None}


def test_who_needs_no_watching_any_more_is_forgotten_and_who_is_new_waits() -> None:
    observation = looked((0, {"b": item(1)}), (5, {"c": item(1)}))
    assert observation.undecided == set()
    assert (observation.silent, observation.moved, observation.watched) == ({}, {}, 1)


def test_a_look_that_came_late_begins_anew() -> None:
    first = (0.0, {"b": item(1)})
    late = (600.0, {"b": item(1)})
    assert looked(first, late).undecided == {"b"}
    after = [(600.0 + 5 * at, {"b": item(1)}) for at in range(1, 8)]
    assert looked(first, late, *after[:-1]).undecided == {"b"}
    assert looked(first, late, *after).silent == {"b": 1}


def test_a_look_that_took_long_begins_anew() -> None:
    """The table stood still: who reads now reads what was written before."""
    observation = Observation(30)
    observation.add(Look(0, 0, {"b": item(1)}))
    observation.add(Look(5, 45, {"b": item(1)}))
    assert observation.undecided == {"b"}
    observation.add(Look(50, 50, {"b": item(2)}))
    assert observation.moved == {"b": 2}


def test_the_first_look_counts_from_its_answer_and_the_last_to_its_question() -> None:
    observation = Observation(30)
    observation.add(Look(0, 3, {"b": item(1)}))
    for at in range(1, 7):
        observation.add(Look(3 + 5 * at, 3 + 5 * at, {"b": item(1)}))
    observation.add(Look(37.9, 39, {"b": item(1)}))
    assert observation.undecided == {"b"}
    observation.add(Look(44, 44, {"b": item(1)}))
    assert observation.silent == {"b": 1}


def test_a_look_that_failed_begins_anew() -> None:
    observation = steady(item(1), 30)
    observation.missed()
    observation.add(Look(35, 35, {"b": item(1)}))
    assert observation.undecided == {"b"}


def test_short_leases_are_looked_at_more_often() -> None:
    assert steady(item(1), 0).look_seconds() == 5
    assert steady(item(1, lease_seconds=9), 0).look_seconds() == 2
    assert Observation(30).look_seconds() == 0
