"""A job's plan in its share: when it would be over, and how late each of its tasks may start (CARBYNE, section 3.2)."""

from dataclasses import dataclass

from schemas.policy import JobOrder
from services.altruism.planning.backward import latest_starts
from services.altruism.planning.dagps import pack_around
from services.altruism.planning.forward import pack
from services.altruism.planning.orders import Scores
from services.altruism.planning.work import Amounts, Packing, Work, widened


@dataclass(slots=True)
class LateStart:
    """`count` tasks of a stage start at the latest `at_ms` after the moment of planning, as many again after the time
    that a task takes, and so on: `waves` times in all."""

    at_ms: int
    count: int
    waves: int

    def __init__(self, at_ms: int, count: int, waves: int) -> None:
        self.at_ms = at_ms
        self.count = count
        self.waves = waves


@dataclass(slots=True)
class Plan:
    """`makespan_ms`: T_k, from the moment of planning on. `late`: by stage position, the latest starts of its waiting
    tasks. `turned`: they come from packing the turned graph. `steps`: what it took to find that, in instants of a
    packing that were looked at; at least one."""

    makespan_ms: int
    late: list[list[LateStart]]
    turned: bool
    steps: int


@dataclass(slots=True)
class Forward:
    """The forward pass of a plan: in the share as it counts (`wide`), and how the turned graph would be packed."""

    wide: list[int]
    packing: Packing
    turned_scores: Scores


def plan(work: Work, share: Amounts, order: JobOrder = "tetris") -> Plan:
    """Plans a job in its fair share, a vector, which counts as at least its largest waiting task."""
    return completed(work, forward(work, share, order))


def forward(work: Work, share: Amounts, order: JobOrder) -> Forward:
    """How long the job takes in its share. This alone costs about half of a plan."""
    wide = widened(share, work)
    if order == "dagps":
        packing, turned_scores = pack_around(work, wide)
        return Forward(wide, packing, turned_scores)
    return Forward(wide, pack(work, wide, Scores(order, work, wide)), Scores(order, work, wide, reverse=True))


def completed(work: Work, begun: Forward) -> Plan:
    """The plan that follows from a forward pass: with latest starts."""
    packing = begun.packing
    batches, turned, steps = latest_starts(work, begun.wide, begun.turned_scores, packing)
    late: list[list[LateStart]] = [[] for _ in work.children]
    for start_ms, at, waves, count in sorted([(each.start_ms, each.stage, each.waves, each.count) for each in batches]):
        stage = late[at]
        if stage and stage[-1].at_ms == start_ms and stage[-1].waves == waves:
            stage[-1].count += count
        else:
            stage.append(LateStart(start_ms, count, waves))
    return Plan(packing.makespan_ms, late, turned, max(1, packing.steps + steps))
