"""Classes of jobs by the size of their request (DRESS, section IV-C): thresholds, names, and the class of a job.

One rule for every core. A class is an index: 0 are the smallest requests, the last one is everything above the highest
threshold. Fold rule: `JobAdmitted.job_class` says the class of a job, `RoundOpened.judged` says another one from that
opening on.
"""

from collections.abc import Sequence
from typing import Final

from schemas import ReleaseCurve, Vector
from schemas.jobs import UNJUDGED
from schemas.policy import Policy
from schemas.presets import PRESETS

WHOLE_PERMILLE: Final = 1_000


def thresholds_of(policy: Policy) -> list[int]:
    """The thresholds between the classes, in permille of the reference, ascending: `theta_permille`, then those of
    `class_thresholds_permille` that lie above it. A job is in the first class whose threshold its request does not
    exceed.
    """
    thresholds = [policy.theta_permille]
    for threshold in sorted(policy.class_thresholds_permille):
        if threshold > thresholds[-1]:
            thresholds.append(threshold)
    return thresholds


def class_names(policy: Policy) -> list[str]:
    """The names of the classes, by index: `small` and `large`; with three `medium` between them; with more of them
    `medium-1`, `medium-2` and so on.
    """
    between = len(thresholds_of(policy)) - 1
    middle = ["medium"] if between == 1 else [f"medium-{i + 1}" for i in range(between)]
    return ["small", *middle, "large"]


def class_name(policy: Policy, job_class: int) -> str | None:
    """The name of a class; None of a job that has not been judged. An index from before the thresholds changed that
    is no class any more counts as the largest."""
    if job_class == UNJUDGED:
        return None
    names = class_names(policy)
    return names[min(job_class, len(names) - 1)]


def has_pools(policy: Policy) -> bool:
    """Whether classes have pools: they are switched on, and there is more than one. A threshold of 0 or of the whole
    reference separates nothing. `altruism=off` makes of a preset with a shadow order one that has neither it nor pools.
    """
    facts = PRESETS[policy.preset]
    plain = facts.has_shadow and policy.altruism == "off"
    on = facts.has_pools and not plain if policy.classes == "preset" else policy.classes == "on"
    return on and any(0 < threshold < WHOLE_PERMILLE for threshold in thresholds_of(policy))


def released_between(curves: Sequence[ReleaseCurve], job_class: int, from_ms: int, to_ms: int) -> Vector:
    """What running tasks of a class give back between two times by a forecast, both in ms after the forecast's time."""
    found: Vector = {}
    for curve in curves:
        if curve.job_class == job_class and (amount := amount_at(curve, to_ms) - amount_at(curve, from_ms)):
            found[curve.kind] = amount
    return found


def amount_at(curve: ReleaseCurve, after_ms: int) -> int:
    """What the curve comes to so long after the forecast's time: that of the last point reached; 0 before the first."""
    amount = 0
    for point in curve.points:
        if point[0] > after_ms:
            break
        amount = point[1]
    return amount
