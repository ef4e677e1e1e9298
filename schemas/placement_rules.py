"""Rules that keep tasks apart (anti-affinity) or spread them over the values of a label, and the classes of tasks that
follow from them.
"""

from collections.abc import Sequence

from schemas.jobs import PlacementRule, Stage
from schemas.quantities import Vector

NO_RULES: list[PlacementRule] = []


def rules_of(job: str, queue: str, stage: Stage) -> list[PlacementRule]:
    """The rules of a stage, in a fixed order; to be read only. What a rule counts are the tasks of its group: those of
    the stage, or of all stages that name the same group in jobs of the same queue. (A job's name has no "/", so no two
    groups are alike.)
    """
    apart, spread = stage.anti_affinity, stage.spread
    if apart is None and spread is None:
        return NO_RULES
    rules: list[PlacementRule] = []
    own = f"{job}/{stage.stage}"
    if apart is not None:
        rules.append(PlacementRule(f"/{queue}/{apart.group}" if apart.group else own, required=apart.required))
    if spread is not None:
        rules.append(PlacementRule(own, spread.label, spread.max_skew, spread.required))
    return rules


def class_key(
    demand: Vector,
    labels: dict[str, str],
    prefer: dict[str, str],
    gang: int,
    rules: Sequence[PlacementRule] = (),
    near: bool = False,
) -> str:
    """Names a class of tasks that placement cannot tell apart. `near`: those that wait for nodes that they prefer."""
    bound = f"{sorted(labels.items())}{sorted(prefer.items())}" if labels or prefer else "[][]"
    # As Python writes the list, in less time: names of resources need no escapes.
    amounts = ", ".join([f"('{kind}', {demand[kind]})" for kind in sorted(demand)])
    key = f"[{amounts}]{bound}{gang}"
    for rule in rules:
        key += f"[{rule.group!r}, {rule.label!r}, {rule.max_skew}, {rule.required}]"
        if rule.nodes:
            key += f"{rule.nodes}"
    return near_key(key) if near else key


def near_key(key: str) -> str:
    """Of a class that waits for nothing the one that waits for nodes that it prefers."""
    return key + "near"
