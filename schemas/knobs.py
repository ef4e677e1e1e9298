"""Changes of the policy, knob by knob."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from schemas.policy import Policy
from schemas.presets import PRESETS


def with_knobs(policy: Policy, knobs: Mapping[str, object]) -> Policy:
    """The policy with other values of these knobs, which the edge has checked."""
    changed = replace(policy)
    for name, value in knobs.items():
        setattr(changed, name, value)
    return changed


def knob_conflict(policy: Policy, changed: Iterable[str]) -> tuple[str, str] | None:
    """Of the knobs that are changed, one whose new value contradicts that of another knob in this policy, and what is
    wrong; None if there is none. What contradicted before stays: only a change is judged.
    """
    low, high = "reserve_ratio_permille_min", "reserve_ratio_permille_max"
    named = set(changed)
    if named & {low, high} and policy.reserve_ratio_permille_min > policy.reserve_ratio_permille_max:
        text = f"{low} would be {policy.reserve_ratio_permille_min}, above {high}, {policy.reserve_ratio_permille_max}"
        return low if low in named else high, f"{text}: set both"
    theta, further = "theta_permille", "class_thresholds_permille"
    below = [each for each in policy.class_thresholds_permille if each <= policy.theta_permille]
    if named & {theta, further} and below:
        text = f"{further} has to lie above {theta}, which would be {policy.theta_permille}, and names {below[0]}"
        return further if further in named else theta, f"{text}: set both"
    if "preemption" in named and policy.preemption == "on" and not PRESETS[policy.preset].has_queues:
        text = f"under the preset {policy.preset} no queue is guaranteed anything that could be taken back for it"
        return "preemption", f"{text}: choose another preset, or leave preemption off"
    return None
