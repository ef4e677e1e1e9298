"""The orders, and the forms, in which a repair plans promises again (repair.py)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from services.planner.planning.placing import Form
from services.planner.planning.request import bounds, fastest
from services.planner.planning.residual import Split

SQUEAKY_MAX = 8
"""How often the order is changed with the same forms."""

PERMUTED_MAX = 5
"""Where no more promises than these can move, every order of them is tried at last."""

_FORMS: tuple[tuple[Form, ...], ...] = (("early", "late", "flat"), ("late", "early", "flat"), ("flat", "early", "late"))


@dataclass(slots=True)
class PlanPiece:
    """A promise as it can be planned again."""

    name: str
    user: str
    parts: Split
    loss: int  # What breaking it loses: dominant share x steps, in 10^-6.


Try = tuple[Sequence[PlanPiece], Sequence[Form]]
"""An order to plan in, and the forms, the agent's own if empty."""


class HarderOrders:
    """Further orders and forms: what found no room last goes first (squeaky wheel optimisation: Joslin and Clements,
    1999); then, where few can move, every order. `failed`: what the last try broke."""

    def __init__(self, pieces: Sequence[PlanPiece]) -> None:
        self.fixed = [piece for piece in pieces if piece.parts.rest is None]
        self.moving = [piece for piece in pieces if piece.parts.rest is not None]
        self.failed: list[PlanPiece] = []

    def __iter__(self) -> Iterator[Try]:
        for forms in _FORMS:
            order = list(self.moving)
            for _ in range(SQUEAKY_MAX):
                yield self.fixed + order, forms
                failed = {piece.name: True for piece in self.failed}
                order.sort(key=lambda piece: piece.name not in failed)
        if len(self.moving) <= PERMUTED_MAX:
            for permuted in permutations(self.moving):
                for forms in _FORMS:
                    yield [*self.fixed, *permuted], forms


def first_orders(pieces: Sequence[PlanPiece]) -> list[list[PlanPiece]]:
    """Orders to plan in: by deadline, by slack, the largest first."""
    moving = [piece for piece in pieces if piece.parts.rest is not None]
    fixed = [piece for piece in pieces if piece.parts.rest is None]

    def deadline(piece: PlanPiece) -> tuple[int, str]:
        return (bounds(piece.parts.rest)[1] if piece.parts.rest is not None else 0), piece.name

    def slack(piece: PlanPiece) -> tuple[int, str]:
        if piece.parts.rest is None:
            return 0, piece.name
        begin, end = bounds(piece.parts.rest)
        return end - begin - fastest(piece.parts.rest), piece.name

    return [
        fixed + sorted(moving, key=lambda piece: (-piece.loss, piece.name)),
        fixed + sorted(moving, key=slack),
        fixed + sorted(moving, key=deadline),
    ]
