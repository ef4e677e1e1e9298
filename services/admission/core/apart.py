"""Stages that can never start because of required anti-affinity or spread rules (schemas/placement_rules.py)."""

from schemas import Stage
from schemas.jobs import Rejection
from services.admission.core.state import State


def rules_problem(state: State, stage: Stage, rooms: list[int]) -> tuple[Rejection, str, str] | None:
    """Why a stage that would fit could never start under its required rules, as (reason, field of the stage, detail).
    `rooms`: how many of its tasks each node holds if it is empty; for a stage that is no gang and has no required
    spread, those up to the first.
    """
    apart = stage.anti_affinity is not None and stage.anti_affinity.required
    if apart and stage.gang and sum(room > 0 for room in rooms) < stage.tasks:
        there = sum(room > 0 for room in rooms)
        return (
            "gang_too_wide",
            "anti_affinity",
            f"a gang of {stage.tasks} tasks, one a node; {there} nodes could run one",
        )
    spread = stage.spread
    if spread is None or not spread.required:
        return None
    by_value: dict[str, int] = {}
    for node, room in zip(state.nodes.values(), rooms, strict=True):
        if room and spread.label in node.labels:
            value = node.labels[spread.label]
            by_value[value] = by_value.get(value, 0) + (1 if apart else room)
    if not by_value:
        return "exceeds_capacity", "spread.label", f'no node that could run a task has the label "{spread.label}"'
    if not stage.gang:
        return None
    most = min(by_value.values()) + spread.max_skew
    together = sum(min(room, most) for room in by_value.values())
    if together < stage.tasks:
        have = ", ".join(f"{value} {room}" for value, room in sorted(by_value.items()))
        detail = f"room by {spread.label}: {have}; with a max_skew of {spread.max_skew} that is {together} together"
        return "gang_too_wide", "spread", f"a gang of {stage.tasks} tasks; {detail}"
    return None
