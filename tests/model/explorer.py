"""Explicit-state checking: every reachable state of a small model, and what can be reached from each.

A model gives frozen states and, for each, its next steps. ``explore`` visits every state, nearest first, so that the
history of a violation is a shortest one. A step that is a fault may happen, but nothing may be counted on it:
``stuck`` gives the states from which no goal is reached by the other steps alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

State = TypeVar("State", bound=Hashable)


class Step(NamedTuple, Generic[State]):
    """One action and the state after it. ``fault`` marks what may happen and need not."""

    action: str
    state: State
    fault: bool = False


@dataclass(frozen=True, slots=True)
class Violation(Generic[State]):
    """A rule that was broken, and a history that leads there: the actions in order, then the last state."""

    rule: str
    actions: tuple[str, ...]
    state: State

    def __str__(self) -> str:
        """The history, one action a line."""
        return "\n  ".join([f"{self.rule}, after:", *self.actions, repr(self.state)])


@dataclass(frozen=True, slots=True)
class Explored(Generic[State]):
    """What was visited: all states, how each was reached first, the actions seen, and the first violation."""

    origins: Mapping[State, tuple[State, str] | None]
    without_fault: Mapping[State, list[State]]
    actions: frozenset[str]
    violation: Violation[State] | None

    def history(self, state: State) -> tuple[str, ...]:
        """The actions of a shortest way to ``state``."""
        return tuple(reversed(list(_way_back(self.origins, state))))


def explore(
    initial: State,
    steps_from: Callable[[State], Iterable[Step[State]]],
    broken_rule: Callable[[State], str | None],
) -> Explored[State]:
    """Visit every reachable state; stop at the first that breaks a rule."""
    origins: dict[State, tuple[State, str] | None] = {initial: None}
    before: dict[State, list[State]] = {}
    actions: set[str] = set()
    waiting = deque([initial])
    while waiting:
        state = waiting.popleft()
        rule = broken_rule(state)
        if rule is not None:
            way = tuple(reversed(list(_way_back(origins, state))))
            return Explored(origins, before, frozenset(actions), Violation(rule, way, state))
        for step in steps_from(state):
            actions.add(step.action)
            if not step.fault:
                before.setdefault(step.state, []).append(state)
            if step.state not in origins:
                origins[step.state] = (state, step.action)
                waiting.append(step.state)
    return Explored(origins, before, frozenset(actions), None)


def stuck(explored: Explored[State], is_goal: Callable[[State], bool]) -> list[State]:
    """The visited states from which no goal can be reached without a further fault, nearest first."""
    reaching = {state for state in explored.origins if is_goal(state)}
    waiting = deque(reaching)
    while waiting:
        for earlier in explored.without_fault.get(waiting.popleft(), ()):
            if earlier not in reaching:
                reaching.add(earlier)
                waiting.append(earlier)
    return [state for state in explored.origins if state not in reaching]


def _way_back(origins: Mapping[State, tuple[State, str] | None], state: State) -> Iterator[str]:
    origin = origins[state]
    while origin is not None:
        state, action = origin
        yield action
        origin = origins[state]
