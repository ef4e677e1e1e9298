"""In which order requests are answered: in that of the log, but for those whose search takes long and those given back.

A request that is given back is answered at once, and so is its deletion. One that has had SLICE_ROUNDS rounds while
others wait is put aside: the others come first, and it is searched for again once none is left. This happens
ASIDE_MAX times at most, so that a stream of small requests does not keep a large one for ever. All of it follows from
the log, as a planner that starts over has to come to the same order.
"""

from services.planner.core.state import State
from services.planner.core.waiting import Proposal, Request, given_back

SLICE_ROUNDS = 8
"""Rounds that a search may take while others wait."""

ASIDE_MAX = 4
"""So often others go before a request."""


def ordered(waiting: list[Request | Proposal]) -> list[Request | Proposal]:
    """The requests in the order in which they are answered; those for one reservation in that of the log."""
    if not any(each.aside or (isinstance(each, Request) and each.kind == "delete") for each in waiting):
        return waiting
    deleted = given_back(waiting)
    later: dict[str, bool] = {}
    ranks: dict[int, int] = {}
    for each in waiting:
        if isinstance(each, Request) and each.reservation in deleted:
            rank = 1
        elif isinstance(each, Request) and (0 < each.aside <= ASIDE_MAX or each.reservation in later):
            rank, later[each.reservation] = 3, True
        else:
            rank = 2 if each.aside <= ASIDE_MAX else 0
        ranks[each.seq] = rank
    return sorted(waiting, key=lambda each: (ranks[each.seq], each.seq))


def take(state: State, asked: Request | Proposal) -> None:
    """Something more waits. What goes before others ends the search for them, which starts over."""
    before = ordered(state.waiting)
    state.waiting = [*state.waiting, asked]
    after = ordered(state.waiting)
    if len(before) == 0:
        state.rounds = 0
    elif after[-1] is not asked:
        if after[0] is not before[0]:
            before[0].aside += 1
        begin_anew(state)


def turn(state: State) -> None:
    """A round opens: what has had its rounds makes way where others wait."""
    if state.rounds <= SLICE_ROUNDS or len(state.waiting) < 2 or state.looks:
        return
    first = ordered(state.waiting)[0]
    if isinstance(first, Request) and first.kind != "delete" and not first.aside:
        first.aside = 1
        begin_anew(state)
        state.rounds = 1


def step(state: State) -> None:
    """A new step begins: the search for the first starts over, and may take less."""
    if state.rounds and state.waiting:
        first = ordered(state.waiting)[0]
        if isinstance(first, Request):
            first.restarts += 1


def answered(state: State, names: list[str], proposals: list[int]) -> list[Request]:
    """Takes what is answered out of what waits, by reservation and by seq of a proposal. Returns the requests."""
    before = ordered(state.waiting)
    found: list[Request] = []
    for name in names:
        found.append(next(each for each in state.waiting if isinstance(each, Request) and each.reservation == name))
        state.waiting.remove(found[-1])
    weighed = dict.fromkeys(proposals, True)
    done = {each.seq: True for each in found}
    done.update((each.seq, True) for each in state.waiting if isinstance(each, Proposal) and each.seq in weighed)
    state.waiting = [each for each in state.waiting if each.seq not in done]
    if ordered(state.waiting) != [each for each in before if each.seq not in done]:
        state.plan = None
    return found


def begin_anew(state: State) -> None:
    """Forgets what was found since the last plan."""
    state.rounds = 0
    if state.plan is not None:
        state.plan.undo()
