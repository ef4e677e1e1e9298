"""What is promised to reservations (Rayon; docs/reservations.md): shared by every core that divides or places
capacity.

The planner's promises come through the log. A job whose reservation is accepted is outside the tree of queues: its
promise is what it has, and for more it competes only for what no other job can use. What the tree divides is therefore
the capacity without what is promised at the opening. Without reservations all of this costs a comparison a round.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from largesse.lifecycle.state import Promises
from schemas import AtomOrder, Plans, PlanStep, Policy, Vector

ALWAYS_MS: Final = 0
"""Before every opening: what is promised has to be recomputed."""


def fold_plans(promises: Promises, plans: Plans) -> bool:
    """Folds what changed. Returns whether another set of reservations is accepted than before."""
    before = list(promises.profiles)
    for profile in plans.profiles:
        promises.profiles[profile.reservation] = profile
    for name in plans.gone:
        promises.profiles.pop(name, None)
    if plans.profiles or plans.gone:
        _index(promises)
    return list(promises.profiles) != before


def switch(promises: Promises, policy: Policy) -> bool:
    """Promises count from now on as the policy says. Returns whether that is another way than before."""
    before, promises.on = promises.on, policy.reservations == "on"
    if before == promises.on:
        return False
    if promises.profiles:
        promises.until_ms = ALWAYS_MS
    return True


def _index(promises: Promises) -> None:
    steps = [step for profile in promises.profiles.values() for step in profile.steps]
    promises.starts = sorted({step.from_ms for step in steps})
    promises.edges = sorted({step.from_ms for step in steps} | {step.to_ms for step in steps})
    promises.until_ms = ALWAYS_MS


def is_accepted(promises: Promises, reservation: str) -> bool:
    """Whether jobs of a reservation are outside the tree."""
    return promises.on and reservation in promises.profiles


def open_promises(promises: Promises, time: int) -> bool:
    """A round opens. Returns whether something else is promised now than at the opening before."""
    if promises.until_ms is None or time < promises.until_ms:
        return False
    amount: Vector = {}
    units = 0
    if promises.on:
        for profile in promises.profiles.values():
            for step in active(profile.steps, time):
                units += step.units
                for kind, part in step.usage.items():
                    amount[kind] = amount.get(kind, 0) + part
    after = bisect_right(promises.edges, time)
    promises.until_ms = promises.edges[after] if promises.on and after < len(promises.edges) else None
    moved = (amount, units) != (promises.amount, promises.units)
    promises.amount, promises.units = amount, units
    return moved


def active(steps: list[PlanStep], time: int) -> Iterator[PlanStep]:
    """The leases that hold at a time."""
    for step in steps:
        if step.from_ms > time:
            return  # They are in order of time.
        if time < step.to_ms:
            yield step


def next_edge_ms(promises: Promises, time: int, ahead_ms: int) -> int | None:
    """When the next lease begins or ends after `time`, or is only `ahead_ms` from its beginning."""
    if not promises.on:
        return None
    found: list[int] = []
    if (at := bisect_right(promises.edges, time)) < len(promises.edges):
        found.append(promises.edges[at])
    if (at := bisect_right(promises.starts, time + ahead_ms)) < len(promises.starts):
        found.append(promises.starts[at] - ahead_ms)
    return min(found, default=None)


def divisible(capacity: Vector, promised: Vector) -> Vector:
    """What is left of a capacity for the tree to divide: at least one unit of every kind that there is, so that a kind
    that is promised as a whole is still known.
    """
    if not promised:
        return dict(capacity)
    return {kind: max(min(1, have), have - promised.get(kind, 0)) for kind, have in capacity.items()}


def earlier_parts(order: list[AtomOrder], part: str) -> list[str]:
    """The parts of a reservation whose work comes before that of `part`: those that it follows directly, those that
    these follow, and so on.
    """
    after: dict[str, list[str]] = {}
    for each in order:
        after.setdefault(each.atom, []).extend(each.after)
    found: dict[str, bool] = {}
    reached = [part]
    while reached:
        at = reached.pop()
        while at:  # What a part lies in it follows, too.
            for early in after.pop(at, ()):
                if early not in found:
                    found[early] = True
                    reached.append(early)
            at = at.rpartition(".")[0]
    return list(found)


def serves(atom: str, part: str) -> bool:
    """Whether the atom at a path is, or lies in, the part of a reservation that a job is bound to ("": all of it)."""
    return not part or atom == part or atom.startswith(f"{part}.")
