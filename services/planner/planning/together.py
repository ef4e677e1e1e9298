"""Makes room for a request by planning it anew together with what is accepted beside it.

What moving one or two promises does not solve is often a matter of order. So the request and the promises that hold
most in its windows are planned one after the other, in several orders and forms; what found no room goes first the next
time (squeaky wheel optimisation: Joslin and Clements, 1999). Only where all of them find room is anything moved.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.planner.planning.placing import Form
from services.planner.planning.request import Node, bounds, fastest, inside
from services.planner.planning.search import Search

if TYPE_CHECKING:
    from services.planner.planning.agents import Agent
    from services.planner.planning.answers import AcceptedRequest, Answer

TOGETHER_MAX = 8
"""Accepted reservations that are planned anew with a request."""

ROUNDS_MAX = 6
"""Orders that are tried with the same forms."""

FORMS: tuple[tuple[Form, ...], ...] = (("early", "late", "flat"), ("late", "early", "flat"))
"""Tried in this order. To begin with the flat form, too, takes half as long again and accepted nothing more."""


@dataclass(slots=True)
class _Piece:
    """A promise, or the request: then `name` is empty."""

    name: str
    user: str
    node: Node

    @property
    def slack(self) -> int:
        begin, end = bounds(self.node)
        return end - begin - fastest(self.node)


def planned_together(agent: "Agent", user: str, node: Node, names: Sequence[str]) -> "Search[Answer | None]":
    """A plan of the request, if the promises `names` can be planned anew beside it; the agent holds their new plans
    then, and the book has all of them. Else everything is as it was, and None."""
    old = {name: agent.held[name] for name in names}
    pieces = [_Piece(name, held.user, inside(held.node, agent.first, agent.horizon)) for name, held in old.items()]
    pieces.append(_Piece("", user, node))
    pieces.sort(key=lambda piece: (piece.slack, piece.name))
    for name in names:
        agent.drop(name)
    for forms in FORMS:
        order = list(pieces)
        for _ in range(ROUNDS_MAX):
            found, failed = yield from _attempt(agent, order, forms)
            if found is not None:
                _hold(agent, old, found)
                answer = found[""]
                answer.moved = [name for name in names if agent.held[name].plan != old[name].plan]
                return answer
            if order.index(failed) == 0:
                break
            order.remove(failed)
            order.insert(0, failed)
    for name, held in old.items():
        agent.hold(name, held)
    return None


def _hold(agent: "Agent", old: "dict[str, AcceptedRequest]", found: "dict[str, Answer]") -> None:
    for name, held in old.items():
        agent.held[name] = type(held)(held.user, held.node, found[name].plan)


def _attempt(
    agent: "Agent", order: Sequence[_Piece], forms: Sequence[Form]
) -> "Search[tuple[dict[str, Answer] | None, _Piece]]":
    """Plans one after the other. None, and what found no room, where one does not."""
    done: dict[str, Answer] = {}
    for piece in order:
        answer = yield from agent.finding(piece.user, piece.node, forms)
        if answer is None:
            for each in order:
                if each.name in done:
                    agent.book.give_back(each.user, done[each.name].plan)
            return None, piece
        done[piece.name] = answer
    return done, order[-1]
