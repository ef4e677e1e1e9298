"""A job's plan in its share: when it would be over, and how late each of its tasks may start (CARBYNE, section 3.2)."""

from dataclasses import dataclass

from schemas.queues import JobOrder
from services.altruism.planning.backward import latest_starts
from services.altruism.planning.dagps import pack_around
from services.altruism.planning.forward import pack
from services.altruism.planning.orders import Scores
from services.altruism.planning.work import Amounts, Packing, Work, widened


@dataclass(slots=True)
class LateStart:
    """`count` tasks of a stage start at the latest `at_ms` after the moment of planning."""

    at_ms: int
    count: int


@dataclass(slots=True)
class Plan:
    """`makespan_ms`: T_k, from the moment of planning on. `late`: by stage position, the latest starts of its waiting
    tasks, the earliest first. `turned`: they come from packing the turned graph. `steps`: batches of tasks placed to
    find it, which is what it costs; at least one."""

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
    batches, turned = latest_starts(work, begun.wide, begun.turned_scores, packing)
    late: list[list[LateStart]] = [[] for _ in work.children]
    for batch in batches:
        stage = late[batch.stage]
        if stage and stage[-1].at_ms == batch.start_ms:
            stage[-1].count += batch.count
        else:
            stage.append(LateStart(batch.start_ms, batch.count))
    return Plan(packing.makespan_ms, late, turned, max(1, packing.steps + len(batches)))
