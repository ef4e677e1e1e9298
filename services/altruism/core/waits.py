"""What of a job could start now. Of a job of which nothing has been granted yet it follows from its graph, and is not
written down: in a full cell nearly all jobs are like that.

Of a stage with a `running_max` more may wait than may start: it is asked for only up to that number, less what runs.
"""

from collections.abc import Sequence

from largesse.lifecycle.state import Span
from services.altruism.core.state import NO_WAITS, BackingOff, Job


def begin(job: Job, time: int) -> None:
    """The job may run from now on: all its stages without parents wait."""
    job.fresh_ms = time


def begin_again(job: Job, attempt: int, time: int) -> None:
    """The same of a job that ran before: some stages may be done, and attempts have other numbers."""
    waits = own_waits(job)
    for at, left in enumerate(job.progress.left):
        if left and not job.progress.parents[at]:
            waits[at] = [Span(0, left, attempt, time)]


def wait_anew(job: Job, time: int) -> None:
    """What waits of a job does so since now: for as long as a user held it, it waited for nobody."""
    if job.fresh_ms >= 0:
        job.fresh_ms = time
    for spans in job.waits.values():
        for span in spans:
            span.since_ms = time


def does_wait(job: Job) -> bool:
    """Whether anything of it could start now."""
    return job.fresh_ms >= 0 or bool(job.waits)


def waiting(job: Job) -> dict[int, list[Span]]:
    """By stage position, the spans that could start now, in their order. To be read only."""
    if job.fresh_ms < 0:
        return job.waits
    return {at: [Span(0, job.graph.stages[at].tasks, 1, job.fresh_ms)] for at in job.graph.roots}


def own_waits(job: Job) -> dict[int, list[Span]]:
    """The same, to be changed: from now on it is written down."""
    if job.fresh_ms >= 0:
        job.waits, job.fresh_ms = waiting(job), -1
    elif job.waits is NO_WAITS:
        job.waits = {}
    return job.waits


def forget_empty(job: Job, at: int) -> None:
    """Nothing of a stage waits any more."""
    del job.waits[at]
    if not job.waits:
        job.waits = NO_WAITS


def is_held_in(job: Job, at: int) -> bool:
    """Whether more of a stage may start once tasks of it have ended."""
    return job.graph.stages[at].running_max is not None and at in job.waits


def may_start(job: Job, at: int, spans: list[Span], later: Sequence[BackingOff]) -> int:
    """How many tasks of a stage may start beside those that run, of those that wait, `spans`; `later`: what of the job
    waits out a back-off."""
    waits = sum([span.count for span in spans])
    stage = job.graph.stages[at]
    if stage.running_max is None:
        return waits
    resting = sum([item.count for item in later if item.stage == at])
    running = job.progress.left[at] - waits - resting
    return max(0, min(waits, stage.width - running))


def first_of(spans: list[Span], count: int) -> list[Span]:
    """The first `count` tasks of some spans, as spans. To be read only."""
    found: list[Span] = []
    for span in spans:
        if count >= span.count:
            found.append(span)
        elif count > 0:
            found.append(Span(span.first, count, span.attempt, span.since_ms))
        count -= span.count
    return found


def take(spans: list[Span], first: int, count: int) -> None:
    """Removes tasks `first` .. `first + count - 1`, which lie inside one span, from those that wait."""
    for i, span in enumerate(spans):
        behind = first - span.first
        if behind < 0 or behind >= span.count:
            continue
        ahead = span.count - behind - count
        assert ahead >= 0, f"tasks {first} to {first + count - 1} are not one span that waits"
        rest = [Span(first + count, ahead, span.attempt, span.since_ms)] if ahead else []
        if behind:
            span.count = behind
            spans[i + 1 : i + 1] = rest
        else:
            spans[i : i + 1] = rest
        return
    raise AssertionError(f"tasks {first} to {first + count - 1} do not wait")
