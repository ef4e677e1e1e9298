"""Jobs as the shadow takes them: how much work there is, and how far it is when they join."""

from largesse.lifecycle.dag import waves_of
from largesse.lifecycle.run_times import expected_ms
from largesse.lifecycle.state import Graph
from schemas.quantities import SHARE_UNITS
from services.leftover.core.job import Job
from services.leftover.core.shadow.state import Pairs, Run, Shadow, Work


def work_of(name: str, leaf: str, job: Job, time: int) -> Work:
    """What is left to be done of a job by now."""
    graph = job.graph
    if len(graph.stages) == 1:
        return _work_of_one(name, leaf, job, time)
    lasts_ms = [expected_ms(stage, job.seen) for stage in graph.stages]
    tasks = job.progress.left.copy()
    demands = [stage.demand for stage in graph.stages]
    in_waves_ms = [
        lasts * waves_of(stage, left) for stage, lasts, left in zip(graph.stages, lasts_ms, tasks, strict=True)
    ]
    work = Work(name, leaf, demands, tasks, lasts_ms, _paths(graph, in_waves_ms), graph.children, [], [], time)
    most = {at: stage.width for at, stage in enumerate(graph.stages) if stage.running_max is not None}
    if most:
        work.most = most
    return work


def _work_of_one(name: str, leaf: str, job: Job, time: int) -> Work:
    """The same of a job of one stage."""
    stage, tasks = job.graph.stages[0], job.progress.left[0]
    lasts_ms = expected_ms(stage, job.seen)
    path_ms = [lasts_ms * waves_of(stage, tasks)]
    work = Work(name, leaf, [stage.demand], [tasks], [lasts_ms], path_ms, job.graph.children, [], [], time)
    if stage.running_max is not None:
        work.most = {0: stage.width}
    return work


def _paths(graph: Graph, lasts_ms: list[int]) -> list[int]:
    """By stage, the longest sum of run times from its start to the end of the job."""
    order, parents = graph.roots.copy(), graph.parents.copy()
    for at in order:
        for child in graph.children[at]:
            parents[child] -= 1
            if not parents[child]:
                order.append(child)
    path_ms = [0] * len(graph.stages)
    for at in reversed(order):
        path_ms[at] = lasts_ms[at] + max([path_ms[child] for child in graph.children[at]], default=0)
    return path_ms


def measure(shadow: Shadow, work: Work) -> None:
    """What tasks of a job need of the capacity in force. A task is taken to be no larger than the cell, and to need
    nothing of a kind that the cell has not got: it will not start, but nobody waits for it in the shadow."""
    kinds, total = shadow.kinds, shadow.total
    work.needs, work.shares, work.started = [], [], None
    for demand in work.demands:
        pairs: Pairs = []
        share = 0
        for p, kind in enumerate(kinds):
            amount, most = demand.get(kind, 0), total[p]
            if amount and most:
                amount = min(amount, most)
                pairs.append((p, amount))
                share = max(share, amount * SHARE_UNITS // most)
        work.needs.append(pairs)
        work.shares.append(share)


def estimate_ms(shadow: Shadow, work: Work) -> int:
    """How long a job might take beside those that are there."""
    shares = 0
    for at, count in enumerate(work.tasks):
        shares += count * work.shares[at] * work.lasts_ms[at]
    return max(max(work.path_ms, default=0), shares * len(shadow.base.runs) // SHARE_UNITS)


def run_of(shadow: Shadow, work: Work) -> Run:
    """A job with nothing running. Stages that have nothing left to be done are over."""
    parents = [0] * len(work.tasks)
    for at, children in enumerate(work.children):
        for child in children:
            parents[child] += work.tasks[at] > 0
    ready = [at for at, count in enumerate(work.tasks) if count and not parents[at]]
    ready.sort(key=lambda at: (-work.path_ms[at], at))
    return Run(work.tasks.copy(), work.tasks.copy(), parents, ready, [0] * len(shadow.kinds))
