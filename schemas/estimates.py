"""How long a task is expected to run. One rule for every core that plans ahead (docs/concepts/altruism.md)."""

from typing import Final

DEFAULT_MS: Final = 60_000
"""Of a task of which nothing is known: neither estimated, nor seen."""


def duration_ms(estimate_ms: int, ended: int, ended_ms: int) -> int:
    """The expected run time of a task, at least 1 ms: what its spec says (`estimate_ms`; 0: nothing), else the
    mean of the tasks of the stage that have succeeded (`ended` of them, `ended_ms` in all), else DEFAULT_MS.
    """
    if estimate_ms > 0:
        return estimate_ms
    return max(1, ended_ms // ended) if ended else DEFAULT_MS


def end_ms(start_ms: int, lasts_ms: int, now_ms: int) -> int:
    """When a task that runs is expected to end, never before `now_ms`. One that has overrun its estimate is expected to
    take twice as long, four times as long and so on: a wait for it is a bounded multiple of its run time.
    """
    lasts_ms = max(1, lasts_ms)
    while start_ms + lasts_ms < now_ms:
        lasts_ms *= 2
    return start_ms + lasts_ms


def total_ms(run_ms: list[int], count: int) -> int:
    """The run time of `count` tasks together, reported as one value a task, or as one for all."""
    return run_ms[0] * count if len(run_ms) == 1 else sum(run_ms)
