"""Places the work of one atom into the room that is left to it, as early as its leases allow, or as late.

`edges`: the steps at which the room changes, begin and end included; `room[i]`: gangs that fit between `edges[i]` and
`edges[i + 1]`. A lease lasts at least `lease` steps. From left to right, what may start starts at once and goes on
while there is room; where the room shrinks, the leases that began first end first.
"""

from collections.abc import Sequence

from services.planner.planning.request import Lease


class _Running:
    """Gangs that started together; they may end from `free` on."""

    __slots__ = ("begin", "free", "gangs")

    def __init__(self, begin: int, free: int, gangs: int) -> None:
        self.begin = begin
        self.free = free
        self.gangs = gangs


def fill_early(edges: Sequence[int], room: Sequence[int], lease: int, work: int) -> list[Lease] | None:
    """Leases of at least `work` gang-steps, or None if there is no room for them."""
    running: list[_Running] = []
    ended: list[Lease] = []
    done = held = 0  # Gang-steps of `ended`; gangs of `running`.
    blocked = -1  # No lease that starts in this run, or before it, has room to the end.
    for i, have in enumerate(room):
        now, then = edges[i], edges[i + 1]
        if held > have:
            done += _end(running, held - have, now, ended)
            held = have
        if have > held and i > blocked:
            left = work - done - _steps_by(running, now)
            most = min(have - held, -(-left // lease))
            if most > 0:
                more, blocked = _lasting(edges, room, i, lease, running, most)
                if more:
                    running.append(_Running(now, now + lease, more))
                    held += more
        if held:
            stop = _stop(running, work - done, now, then)
            if stop is not None:
                ended.extend(Lease(each.begin, max(stop, each.free), each.gangs) for each in running)
                return _pruned(ended, work)
    return None


def fill_late(edges: Sequence[int], room: Sequence[int], lease: int, work: int) -> list[Lease] | None:
    """The same from right to left."""
    found = fill_early([-edge for edge in reversed(edges)], room[::-1], lease, work)
    return None if found is None else sorted(Lease(-each.end, -each.begin, each.gangs) for each in found)


def _end(running: list[_Running], gangs: int, now: int, ended: list[Lease]) -> int:
    """Ends a number of gangs, those that began first. Returns their gang-steps."""
    steps = 0
    while gangs:
        first = running[0]
        assert first.free <= now, "a lease started where it does not last"
        less = min(gangs, first.gangs)
        ended.append(Lease(first.begin, now, less))
        steps += (now - first.begin) * less
        gangs -= less
        first.gangs -= less
        if not first.gangs:
            del running[0]
    return steps


def _lasting(
    edges: Sequence[int], room: Sequence[int], i: int, lease: int, running: Sequence[_Running], most: int
) -> tuple[int, int]:
    """How many more gangs, `most` at most, may start with run `i` and have room for a whole lease. If none: the run
    that blocks them, and so all that might start before it has ended; else -1.
    """
    until = edges[i] + lease
    if until > edges[-1]:
        return 0, len(room)
    locked = [each for each in running if each.free > edges[i]]
    for j in range(i, len(room)):
        at = edges[j]
        if at >= until:
            break
        have = room[j]
        for each in locked:
            if each.free > at:
                have -= each.gangs
        if have < most:
            most = have
            if most <= 0:
                return 0, j
    return most, -1


def _steps_by(running: Sequence[_Running], at: int) -> int:
    """Gang-steps of leases that end at a step, or as soon after it as they may. Called for every run."""
    steps = 0
    for each in running:
        free = each.free
        steps += ((free if free > at else at) - each.begin) * each.gangs
    return steps


def _stop(running: Sequence[_Running], work: int, now: int, then: int) -> int | None:
    """The first step in `[now, then]` by which leases that are ended there come to `work`; None if there is none."""
    if _steps_by(running, then) < work:
        return None
    have = _steps_by(running, now)
    at, rate = now, sum(each.gangs for each in running if each.free <= now)
    for each in running:  # In the order of `free`, as all last alike.
        if have >= work:
            break
        if each.free > at:
            if have + (each.free - at) * rate >= work:
                break
            have += (each.free - at) * rate
            at = each.free
            rate += each.gangs
    return at if have >= work else at - (have - work) // rate


def _pruned(leases: list[Lease], work: int) -> list[Lease]:
    """Without gangs that are not needed: the last to begin goes first."""
    over = sum((each.end - each.begin) * each.gangs for each in leases) - work
    kept = []
    for each in sorted(leases, key=lambda each: (-each.begin, each.end - each.begin)):
        less = min(each.gangs, over // (each.end - each.begin))
        over -= less * (each.end - each.begin)
        if less < each.gangs:
            kept.append(Lease(each.begin, each.end, each.gangs - less))
    return sorted(kept)
