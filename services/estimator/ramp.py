"""What a phase will have given back by when: a straight line over its starting variation (DRESS, equations 5 and 9)."""

from services.estimator.phases import Ramp

SECOND_MS = 1_000


def come_by(total: int, given_back: int, release_ms: int, spread_ms: int, at_ms: int) -> int:
    """What is still to come by `at_ms` of `total`, of which `given_back` has come: nothing before `release_ms`, all of
    it `spread_ms` later. Rounded down: others build on it.
    """
    elapsed_ms = at_ms - release_ms
    if elapsed_ms < 0:
        return 0
    due = total if elapsed_ms >= spread_ms else total * elapsed_ms // spread_ms
    return max(0, due - given_back)


def increments(ramp: Ramp, until_ms: int) -> list[tuple[str, int, int]]:
    """What comes in each second, as (kind, second, amount), up to `until_ms`; an amount comes by the end of its second,
    `second` x 1,000 ms.
    """
    found: list[tuple[str, int, int]] = []
    end = min(-(-(ramp.release_ms + ramp.spread_ms) // SECOND_MS), until_ms // SECOND_MS)
    for kind, total in ramp.total.items():
        given = ramp.given_back.get(kind, 0)
        if total <= given:
            continue
        # Before this moment what was given back covers the line.
        ahead_ms = ramp.release_ms + given * ramp.spread_ms // total
        before = 0
        for second in range(min(-(-ahead_ms // SECOND_MS), end), end + 1):
            amount = come_by(total, given, ramp.release_ms, ramp.spread_ms, second * SECOND_MS)
            if amount > before:
                found.append((kind, second, amount - before))
                before = amount
    return found
