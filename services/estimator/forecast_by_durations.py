"""When running tasks are expected to end, by how long a task of their stage takes (docs/concepts/altruism.md)."""

SECOND_MS = 1_000
TOLERANCE = 8
"""An expected run time that is learnt from ended tasks moves by more than one part in so many before what runs is
expected to end at another time."""


def end_second(start_ms: int, lasts_ms: int, now_ms: int) -> int:
    """The second by whose end (x 1,000 ms) a running task is expected to have ended. One that has not by then is
    expected to take twice as long, four times as long and so on, as everywhere (schemas/estimates.py).
    """
    lasts_ms = max(1, lasts_ms)
    while True:
        second = -(-(start_ms + lasts_ms) // SECOND_MS)
        if second * SECOND_MS >= now_ms:
            return second
        lasts_ms *= 2


def has_moved(used_ms: int, learnt_ms: int) -> bool:
    """Whether another expected run time is to be used from now on."""
    return abs(learnt_ms - used_ms) * TOLERANCE > used_ms
