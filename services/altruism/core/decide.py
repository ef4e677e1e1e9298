"""How altruism answers an open round."""

from largesse.core import OpenRound
from largesse.ids import shard_of
from schemas import Asks, JobAsk, StageAsk
from services.altruism.core.state import Job, State


def decide(state: State, opened: OpenRound) -> list[Asks]:
    """Asks of the jobs that changed since the last closed round; of all, where the count of shards has."""
    of = opened.record.body.shards
    if state.full:
        names = [name for name in state.jobs if shard_of(name, of) == state.shard]
    else:
        names = list(state.answering)
    asks, wake_ms = [], None
    for name in names:
        job = state.jobs.get(name)
        if job is not None and (job.waits or not state.full):
            asks.append(JobAsk(name, _asks_of(job)))
    for later in state.later.values():
        for item in later:
            if item.at_ms > opened.time and (wake_ms is None or item.at_ms < wake_ms):
                wake_ms = item.at_ms
    return [Asks(state.shard, of, asks, state.full, wake_ms)]


def _asks_of(job: Job) -> list[StageAsk]:
    """What could start now: stage by stage in the order of the graph, tasks that come back first."""
    asks = []
    for at in sorted(job.waits):
        name = job.graph.stages[at].stage
        for span in job.waits[at]:
            asks.append(StageAsk(name, span.first, span.count, span.attempt, span.since_ms))
    return asks
