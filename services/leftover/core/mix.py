"""Which classes of tasks that ask for GPUs have lately been admitted, and how often: what placement keeps room for.

Counts are decayed by admissions, not by time: once they add up to `LATELY_MOST`, all are halved. Weights follow the
counts whenever an eighth part of them is new, so that what a round values does not change with each job.
A class that waits for room then counts for at least a part of all, however long ago it was admitted.
"""

from typing import Final

from schemas.placement_rules import class_key
from schemas.quantities import Vector
from services.leftover.core.job import Job
from services.leftover.core.state import Lately, State
from services.leftover.placement.pending_reasons import WANTS_ROOM

LATELY_MOST: Final = 8_192
"""So many tasks are remembered at most."""

TASKS_MOST: Final = 64
"""Tasks of a stage that count at most: one large job is not all that is to be expected."""

FRESH_LEAST: Final = 16
FRESH_PART: Final = 8
WAITS_PART: Final = 256
CLASSES_MOST: Final = 256
"""Classes that room is kept for: those with the most weight."""


def note_admitted(state: State, job: Job) -> None:
    """Counts the stages of a new job that ask for GPUs."""
    mix = state.mix
    for stage in job.graph.stages:
        if not stage.demand.get("gpu"):
            continue
        key, count = class_key(stage.demand, stage.labels, {}, 0), min(stage.tasks, TASKS_MOST)
        lately = mix.classes.get(key)
        if lately is None:
            lately = mix.classes[key] = Lately(stage.demand, stage.labels)
        lately.count += count
        mix.tasks += count
        mix.fresh += count
    if mix.fresh >= max(FRESH_LEAST, mix.tasks // FRESH_PART):
        _weigh(state)
        if state.board is not None:
            state.board.node_table.set_mix(mix_of(state))


def _weigh(state: State) -> None:
    """Weights follow the counts, and classes that are long gone are forgotten."""
    mix = state.mix
    if mix.tasks > LATELY_MOST:
        for lately in mix.classes.values():
            lately.count //= 2
        mix.tasks = sum([lately.count for lately in mix.classes.values()])
    least = max(1, mix.tasks // WAITS_PART)
    for lately in mix.classes.values():
        lately.weight = lately.count
    for said in state.reasons.values():
        if said.demand.get("gpu") and said.reason in WANTS_ROOM:
            key = class_key(said.demand, said.labels, {}, 0)
            if key not in mix.classes:
                mix.classes[key] = Lately(said.demand, said.labels)
            mix.classes[key].weight = max(mix.classes[key].weight, least)
    ranked = sorted(mix.classes, key=lambda key: (-mix.classes[key].weight, key))
    for key in ranked[CLASSES_MOST:]:
        mix.classes[key].weight = 0
    mix.classes = {key: lately for key, lately in mix.classes.items() if lately.count or lately.weight}
    mix.fresh = 0


def mix_of(state: State) -> list[tuple[Vector, dict[str, str], int]]:
    """The mix in force, as placement takes it, in an order that does not depend on how it came about."""
    classes = state.mix.classes
    return [
        (classes[key].demand, classes[key].labels, classes[key].weight)
        for key in sorted(classes)
        if classes[key].weight
    ]
