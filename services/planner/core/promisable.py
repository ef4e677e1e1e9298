"""How much a cell may promise, and how much of it to each queue."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from schemas import Policy, Vector
from services.planner.planning.book import UNLIMITED
from services.planner.planning.limits import UserLimits

PERMILLE = 1000


def promisable(policy: Policy, capacity: Vector) -> Vector:
    """What may be promised of every resource that there is or was: all but what best-effort work is guaranteed."""
    part = PERMILLE - policy.reservation_best_effort_permille
    return {resource: amount * part // PERMILLE for resource, amount in sorted(capacity.items())}


def positions(capacity: Vector) -> dict[str, int]:
    return {resource: i for i, resource in enumerate(capacity)}


def maxima_of(ceilings: Mapping[str, Vector], resources: Mapping[str, int]) -> dict[str, list[int]]:
    """What every queue that has a maximum may hold together with those below it."""
    return {path: [most.get(kind, UNLIMITED) for kind in resources] for path, most in ceilings.items()}


def owner_most(policy: Policy, capacity: Sequence[int]) -> list[int] | None:
    """What one user may have promised at any moment in all queues together; None: there is no limit."""
    part = policy.reservation_user_permille
    return [have * part // PERMILLE for have in capacity] if part < PERMILLE else None


def limits_of(policy: Policy, step_ms: int) -> UserLimits:
    """The limits of every queue."""
    instant, average = policy.reservation_instant_permille, policy.reservation_average_permille
    return UserLimits(
        Fraction(instant, PERMILLE) if instant < PERMILLE else None,
        Fraction(average, PERMILLE) if average < PERMILLE else None,
        max(1, policy.reservation_average_ms // step_ms),
    )
