"""By when the tasks of a stage have to start, as a plan says it: in waves, one behind the other."""

from schemas import LateStart
from services.altruism.core.state import Late


def late_of(said: LateStart) -> Late:
    """As it is kept."""
    return Late(said.at_ms, said.count, said.waves, said.every_ms)


def due_by(lates: list[Late], now_ms: int) -> int:
    """How many tasks have to have started by a moment."""
    due = 0
    for late in lates:
        if late.at_ms <= now_ms:
            due += late.count * min(late.waves, _waves_by(late, now_ms))
    return due


def next_moment(late: Late, now_ms: int) -> int | None:
    """The first latest start of these tasks after a moment."""
    if now_ms < late.at_ms:
        return late.at_ms
    waves = _waves_by(late, now_ms)
    return late.at_ms + waves * late.every_ms if waves < late.waves else None


def next_need(lates: list[Late], started: int, now_ms: int) -> int | None:
    """The first moment after this one at which another task has to start, where so many have: they come off the
    earliest latest starts. None where no further task has to."""
    if due_by(lates, now_ms) >= started:
        moments = [next_moment(late, now_ms) for late in lates]
        return min([moment for moment in moments if moment is not None], default=None)
    before_ms, by_ms = now_ms, max([late.at_ms + (late.waves - 1) * late.every_ms for late in lates], default=0)
    if due_by(lates, by_ms) <= started:
        return None
    while by_ms - before_ms > 1:
        middle_ms = (before_ms + by_ms) // 2
        if due_by(lates, middle_ms) > started:
            by_ms = middle_ms
        else:
            before_ms = middle_ms
    return by_ms


def _waves_by(late: Late, now_ms: int) -> int:
    """How many waves would have started by a moment from the first latest start on, if they went on for ever."""
    return (now_ms - late.at_ms) // late.every_ms + 1 if late.every_ms else 1
