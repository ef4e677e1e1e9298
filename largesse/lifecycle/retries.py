"""How a job fares: what of it waits, what has ended, when it is over. Shared words of the cores that follow jobs.

Rules (docs/jobs.md; docs/lifecycle.md): a stage may run when its parents ended; only
`exit_code`, `timeout`, `cannot_start` and `memory` count against `retries`; LOST_ATTEMPTS_MAX `lost` attempts in a row
fail the task; a gang shares one attempt, which ends for all of it when it ends for one.
"""

from typing import Literal

from largesse.lifecycle.state import Graph, Progress, Span, Tries
from schemas.tasks import Failure

LOST_ATTEMPTS_MAX = 10
"""So many attempts of one task that end `lost` in a row fail it: something about it kills nodes."""

COUNTED: tuple[Failure, ...] = ("exit_code", "timeout", "cannot_start", "memory")
"""Failures that count against a stage's retries."""

Verdict = Literal["again", "over"]


def is_broken(tries: Tries | None, at: int, attempt: int) -> bool:
    """Whether a gang's attempt has ended already, so that what its other tasks report counts for nothing."""
    return tries is not None and attempt <= tries.broken.get(str(at), 0)


def judge_failure(
    tries: Tries, graph: Graph, progress: Progress, at: int, index: int, attempt: int, reason: Failure
) -> Verdict:
    """Counts one ended attempt and says whether its task may be asked again.

    The first failure in a gang's attempt ends it for all: what had succeeded in it counts no more.
    """
    stage = graph.stages[at]
    if stage.gang:
        if is_broken(tries, at, attempt):
            return "again"
        tries.broken[str(at)] = attempt
        assert progress is not graph.untouched, "it is shared with other jobs"
        progress.left[at] = stage.tasks
    key = f"{at}/{0 if stage.gang else index}"
    if reason in COUNTED:
        tries.lost.pop(key, None)
        tries.failed[key] = tries.failed.get(key, 0) + 1
        return "over" if tries.failed[key] > stage.retries else "again"
    if reason == "lost":
        tries.lost[key] = tries.lost.get(key, 0) + 1
        return "over" if tries.lost[key] >= LOST_ATTEMPTS_MAX else "again"
    return "again"


def failures_of(tries: Tries | None, graph: Graph, at: int, index: int) -> int:
    """How many counted failures the task (or its gang) has behind it."""
    if tries is None:
        return 0
    return tries.failed.get(f"{at}/{0 if graph.stages[at].gang else index}", 0)


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
