"""How much a cell may promise, and how much of it to each queue."""

from fractions import Fraction

from schemas import Vector
from services.planner.core.state import State
from services.planner.planning.limits import UserLimits

PERMILLE = 1000


def promisable(state: State) -> Vector:
    """What may be promised of every resource that there is or was: all but what best-effort work is guaranteed."""
    part = PERMILLE - state.policy.reservation_best_effort_permille
    return {resource: amount * part // PERMILLE for resource, amount in sorted(state.capacity.items())}


def positions(capacity: Vector) -> dict[str, int]:
    return {resource: i for i, resource in enumerate(capacity)}


def limits_of(state: State) -> UserLimits:
    """The limits of every queue."""
    policy = state.policy
    instant, average = policy.reservation_instant_permille, policy.reservation_average_permille
    return UserLimits(
        Fraction(instant, PERMILLE) if instant < PERMILLE else None,
        Fraction(average, PERMILLE) if average < PERMILLE else None,
        max(1, policy.reservation_average_ms // state.step_ms),
    )
