"""Broken promises that are tried again when there is more room, until their windows end.

What is asked for again is what was promised less the leases that were over when it broke, in the rest of its window,
as any other request, and never at the cost of another promise. They are tried in turn, RETRIES_MAX at a time, the
heaviest of those first, once there is more capacity, or room that was promised has been given back.
"""

from schemas import Plans
from schemas.plans import UNASKED
from services.planner.core.promises import Broken, Lease, Promise
from services.planner.core.state import State
from services.planner.core.waiting import Restore, given_back

AGAIN = "after it was broken, now that there is room for it again"

RETRIES_MAX = 64
"""So many are tried at a time at most, so that what else waits for an answer does not wait long."""


def keep_broken(state: State, name: str, until_ms: int, why: str) -> None:
    """A promise is broken from now on, and may be restored."""
    promise = state.promises[name]
    first = state.first
    leases = [each for each in promise.leases if each.begin < first]
    planned = {each.atom: True for each in promise.leases}
    # What has no lease any more is served.
    works = {atom: work if atom in planned else 0 for atom, work in promise.works.items()}
    over = [Lease(each.atom, each.begin, min(each.end, first), each.gangs) for each in leases]
    kept = Promise(promise.user, promise.queue, promise.rdl, promise.seq, over, promise.series, works)
    kept.weight = promise.weight
    kept.missing, kept.done = promise.missing, promise.done
    state.broken[name] = Broken(kept, until_ms, why)
    state.returned = False


def restored(state: State, name: str) -> Promise:
    """A broken promise holds again."""
    promise = state.promises[name] = state.broken.pop(name).promise
    if name in state.reserving:
        state.active[name] = True
    return promise


def forget_broken(state: State, name: str) -> None:
    """A broken promise is tried again no more."""
    state.broken.pop(name, None)
    state.retries = [each for each in state.retries if each.reservation != name]


def list_retries(state: State) -> bool:
    """A round opens: lists what is tried again in it. Returns whether that is something else than before."""
    if not state.broken or not state.returned or state.policy.reservations != "on":
        return False
    deleted = given_back(state.waiting)
    state.returned = False
    names = [name for name in state.broken if name not in deleted][:RETRIES_MAX]
    names.sort(key=lambda name: -state.broken[name].promise.weight)
    of = [state.broken[name].promise for name in names]
    state.retries = [
        Restore(name, each.user, each.queue, each.rdl, each.weight, each.leases, each.works)
        for name, each in zip(names, of, strict=True)
    ]
    return bool(state.retries)


def fold_retries(state: State, body: Plans) -> None:
    """What became of those that were tried: the others have their turn before them next time."""
    told = {each.reservation: True for each in body.answers if each.reason in UNASKED}
    for name in [each.reservation for each in state.retries if each.reservation in told]:
        if name in state.broken:
            state.broken[name] = state.broken.pop(name)
    state.retries = [
        each for each in state.retries if each.reservation in state.broken and each.reservation not in told
    ]
