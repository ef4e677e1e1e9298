"""What a job asks for. As long as altruism has said nothing about a job since it began, its asks follow from its graph
and are not stored: in a full cell nearly all jobs are like that.
"""

from largesse.ids import shard_of
from schemas import Asks, Grant, StageAsk
from services.leftover.core.state import NO_ASKS, Job


def does_ask(job: Job) -> bool:
    """Whether it asks for anything."""
    return job.fresh_ms >= 0 or bool(job.asks)


def in_shard(name: str, asks: Asks) -> bool:
    """Whether the shard of altruism that says these asks speaks for a job."""
    return shard_of(name, asks.of) == asks.shard


def asks_of(job: Job) -> list[StageAsk]:
    """What it asks for, in its order. To be read only."""
    if job.fresh_ms < 0:
        return job.asks
    return [StageAsk(s.stage, 0, s.tasks, 1, job.fresh_ms) for s in job.graph.stages if not s.after]


def ask(job: Job, asks: list[StageAsk]) -> None:
    """From now on it asks for this."""
    job.asks, job.fresh_ms = list(asks) or NO_ASKS, -1  # A list of its own. Spans are never changed in place.


def shorten(job: Job, grant: Grant) -> None:
    """Takes granted tasks off what the job asks for."""
    if job.fresh_ms >= 0 and len(job.graph.stages) == 1 and grant.count == job.graph.tasks[0]:
        job.asks, job.fresh_ms = NO_ASKS, -1  # All that it asks for: so it is with most jobs.
        return
    asks = asks_of(job)
    for i, asked in enumerate(asks):
        behind = grant.first - asked.first
        if asked.stage != grant.stage or behind < 0 or behind >= asked.count:
            continue
        ahead = asked.count - behind - grant.count
        assert ahead >= 0, f"{grant.job}/{grant.stage}: granted tasks are not one span that it asked for"
        parts = ((asked.first, behind), (grant.first + grant.count, ahead))
        asks[i : i + 1] = [_part(asked, first, count) for first, count in parts if count]
        job.asks, job.fresh_ms = asks or NO_ASKS, -1
        return
    raise AssertionError(f"{grant.job}/{grant.stage}/{grant.first} was granted but not asked for")


def _part(asked: StageAsk, first: int, count: int) -> StageAsk:
    return StageAsk(asked.stage, first, count, asked.attempt, asked.since_ms, asked.kind)
