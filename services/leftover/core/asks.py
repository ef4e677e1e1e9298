"""What a job asks for. As long as altruism has said nothing about a job since it began, its asks follow from its graph
and are not stored: in a full cell nearly all jobs are like that.
"""

from largesse.ids import shard_of
from schemas import Asks, StageAsk
from services.leftover.core.job import NO_ASKS, Job


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
    return [StageAsk(s.stage, 0, s.width, 1, job.fresh_ms) for s in job.graph.stages if not s.after]


def first_asks(job: Job, attempt: int, time: int) -> list[StageAsk]:
    """What a job asks for that begins again, perhaps with stages that are done."""
    left, parents = job.progress.left, job.progress.parents
    stages = [stage for at, stage in enumerate(job.graph.stages) if left[at] and not parents[at]]
    return [StageAsk(stage.stage, 0, stage.width, attempt, time) for stage in stages]


def ask(job: Job, asks: list[StageAsk]) -> None:
    """From now on it asks for this."""
    job.asks, job.fresh_ms = list(asks) or NO_ASKS, -1  # A list of its own. Spans are never changed in place.


def shorten(job: Job, name: str, stage: str, first: int, count: int) -> None:
    """Takes granted tasks `first` .. `first + count - 1` of a stage off what the job `name` asks for."""
    if job.fresh_ms >= 0 and len(job.graph.stages) == 1 and count == job.graph.tasks[0]:
        job.asks, job.fresh_ms = NO_ASKS, -1  # All that it asks for: so it is with most jobs.
        return
    asks = asks_of(job)
    for i, asked in enumerate(asks):
        if asked.stage != stage:
            continue
        asked_first, asked_count = asked.first, asked.count
        behind = first - asked_first
        if behind < 0 or behind >= asked_count:
            continue
        ahead = asked_count - behind - count
        assert ahead >= 0, f"{name}/{stage}: granted tasks are not one span that it asked for"
        if ahead:
            asks.insert(i + 1, _part(asked, first + count, ahead))
        if behind:
            asks[i] = _part(asked, asked_first, behind)
        else:
            del asks[i]
        job.asks, job.fresh_ms = asks or NO_ASKS, -1
        return
    raise AssertionError(f"{name}/{stage}/{first} was granted but not asked for")


def without(asks: list[StageAsk], stage: str, first: int, count: int) -> list[StageAsk]:
    """The same asks without tasks `first` .. `first + count - 1` of a stage."""
    found: list[StageAsk] = []
    for asked in asks:
        end, gone_end = asked.first + asked.count, first + count
        if asked.stage != stage or end <= first or gone_end <= asked.first:
            found.append(asked)
            continue
        if asked.first < first:
            found.append(_part(asked, asked.first, first - asked.first))
        if gone_end < end:
            found.append(_part(asked, gone_end, end - gone_end))
    return found


def _part(asked: StageAsk, first: int, count: int) -> StageAsk:
    return StageAsk(asked.stage, first, count, asked.attempt, asked.since_ms, asked.kind)
