from __future__ import annotations

from collections.abc import Iterator

from tests.model.explorer import Step, explore, stuck


def counting(state: int) -> Iterator[Step[int]]:
    """0 to 9 by one; from 5 a fault leads to a dead end and another to where one can only go round."""
    if state < 9:
        yield Step("one more", state + 1)
    if state == 5:
        yield Step("break", 100, fault=True)
        yield Step("go astray", 200, fault=True)
    if state in {200, 201}:
        yield Step("go round", 401 - state)


def no_rule(state: int) -> str | None:
    return None


def test_every_state_is_visited_once_with_a_shortest_history() -> None:
    explored = explore(0, counting, no_rule)
    assert set(explored.origins) == {*range(10), 100, 200, 201}
    assert explored.actions == {"one more", "break", "go astray", "go round"}
    assert explored.history(201) == ("one more",) * 5 + ("go astray", "go round")
    assert explored.history(0) == ()
    assert explored.violation is None


def test_the_first_violation_ends_the_search_and_tells_its_history() -> None:
    explored = explore(0, counting, lambda state: "beyond the range" if state > 9 else None)
    assert explored.violation is not None
    assert (explored.violation.rule, explored.violation.state) == ("beyond the range", 100)
    assert str(explored.violation).splitlines() == ["beyond the range, after:", *["  one more"] * 5, "  break", "  100"]


def test_stuck_are_a_dead_end_and_a_circle_but_not_what_only_needs_time() -> None:
    explored = explore(0, counting, no_rule)
    assert stuck(explored, lambda state: state == 9) == [100, 200, 201]
    assert stuck(explored, lambda state: state == 100) == [state for state in explored.origins if state != 100]
