"""Exhaustive search: every state that a small model can come to, and whether its law holds in each."""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)
Steps = Callable[[S], Iterator[tuple[str, S]]]


@dataclass(slots=True)
class Found(Generic[S]):
    """What a search came to. `trace`: the shortest way to a state in which the law is broken, and `wrong` what it
    breaks; `ways`: for each state those that lead to it."""

    states: int = 0
    transitions: int = 0
    wrong: str = ""
    trace: list[str] = field(default_factory=list)
    ways: dict[S, list[S]] = field(default_factory=dict)


def explore(start: S, steps: Steps[S], law: Callable[[S], str]) -> Found[S]:
    """Goes through all states that can be reached, the near ones first, until one breaks the law."""
    found: Found[S] = Found(ways={start: []})
    came: dict[S, tuple[S, str] | None] = {start: None}
    ahead = deque([start])
    while ahead:
        state = ahead.popleft()
        found.states += 1
        if wrong := law(state):
            found.wrong, found.trace = wrong, _trace(state, came)
            return found
        for name, after in steps(state):
            found.transitions += 1
            found.ways.setdefault(after, []).append(state)
            if after not in came:
                came[after] = (state, name)
                ahead.append(after)
    return found


def without_a_way(found: Found[S], is_goal: Callable[[S], bool]) -> list[S]:
    """States from which no way leads to a goal."""
    can = {state for state in found.ways if is_goal(state)}
    ahead = deque(can)
    while ahead:
        for before in found.ways[ahead.popleft()]:
            if before not in can:
                can.add(before)
                ahead.append(before)
    return [state for state in found.ways if state not in can]


def _trace(state: S, came: dict[S, tuple[S, str] | None]) -> list[str]:
    names: list[str] = []
    before = came[state]
    while before is not None:
        names.append(before[1])
        before = came[before[0]]
    return names[::-1]
