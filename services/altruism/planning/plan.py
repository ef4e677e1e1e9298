"""A job's plan in its share: when it would be over, and how late each of its tasks may start (CARBYNE, section 3.2)."""

from dataclasses import dataclass

from services.altruism.planning.backward import latest_starts
from services.altruism.planning.dagps import pack_around
from services.altruism.planning.forward import pack
from services.altruism.planning.orders import Order, Scores
from services.altruism.planning.work import Amounts, Work, widened


@dataclass(slots=True)
class LateStart:
    """`count` tasks of a stage start at the latest `at_ms` after the moment of planning."""

    at_ms: int
    count: int


@dataclass(slots=True)
class Plan:
    """`makespan_ms`: T_k, from the moment of planning on. `late`: by stage position, the latest starts of its waiting
    tasks, the earliest first. `turned`: they come from packing the turned graph."""

    makespan_ms: int
    late: list[list[LateStart]]
    turned: bool


def plan(work: Work, share: Amounts, order: Order = "tetris") -> Plan:
    """Plans a job in its fair share, a vector, which counts as at least its largest waiting task."""
    wide = widened(share, work)
    if order == "dagps":
        packing, turned_scores = pack_around(work, wide)
    else:
        packing, turned_scores = pack(work, wide, Scores(order, work, wide)), Scores(order, work, wide, reverse=True)
    batches, turned = latest_starts(work, wide, turned_scores, packing)
    late: list[list[LateStart]] = [[] for _ in work.children]
    for batch in batches:
        stage = late[batch.stage]
        if stage and stage[-1].at_ms == batch.start_ms:
            stage[-1].count += batch.count
        else:
            stage.append(LateStart(batch.start_ms, batch.count))
    return Plan(packing.makespan_ms, late, turned)
