"""After a loss of capacity: which promises cannot be kept as they stand.

Promises are looked at from now to the end of a check window: later ones may yet be saved. Where a step holds more than
there is, the promise that was accepted last goes first. What turns out to fit beside the rest after all is kept, the
oldest first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.planner.planning.limits import first_above
from services.planner.planning.profile import Profile

Runs = Sequence[tuple[int, int, list[int]]]
"""First step, step after the last, amounts."""


@dataclass(slots=True)
class Promise:
    """What an accepted reservation holds. `accepted`: its place in the order of acceptance."""

    name: str
    accepted: int
    runs: Runs


def not_kept(promises: Sequence[Promise], capacity: Sequence[int], begin: int, end: int) -> list[str]:
    """Names of promises to give up, last accepted first, so that steps `[begin, end)` hold no more than there is."""
    profile = Profile(len(capacity))
    for promise in promises:
        _add(profile, promise, 1)
    kept = sorted(promises, key=lambda promise: (promise.accepted, promise.name))
    removed: list[Promise] = []
    while above := first_above(profile, capacity, begin, end):
        step, resource = above
        last = max(
            i for i, promise in enumerate(kept) if any(a <= step < b and of[resource] for a, b, of in promise.runs)
        )
        removed.append(kept.pop(last))
        _add(profile, removed[-1], -1)
    for promise in sorted(removed, key=lambda promise: (promise.accepted, promise.name)):
        _add(profile, promise, 1)
        if first_above(profile, capacity, begin, end):
            _add(profile, promise, -1)
        else:
            removed.remove(promise)
    return [promise.name for promise in removed]


def _add(profile: Profile, promise: Promise, sign: int) -> None:
    for first, last, amounts in promise.runs:
        profile.add(first, last, amounts, sign)
