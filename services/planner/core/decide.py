"""The planner's answer to an open round."""

from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, cast, get_args

from largesse.core import OpenRound
from schemas import AtomOrder, AtomProgress, PlanAnswer, PlanProfile, Plans, PlanStep, ProposalAnswer
from schemas.plans import PlanForm, PlanReason, ProposalReason
from services.planner.core.broken import AGAIN
from services.planner.core.progress import follows
from services.planner.core.state import State
from services.planner.core.turns import ordered
from services.planner.core.waiting import Follow, Proposal, Restore
from services.planner.planning.request import Atom, Node, Plan, atoms

if TYPE_CHECKING:
    from services.planner.core.cell_plan import CellPlan
    from services.planner.core.found import Asked, Found, Promises
    from services.planner.planning.answers import Answer

WORK_MAX = 4_000
"""What is looked at in a round at most, as planning/book.py counts: on the machines we know about 5 ms."""

ROUNDS_AT_ONCE = 8
"""Rounds without an answer that follow one another at once."""

PAUSE_MS = 50
"""Between those that come after."""

_REASONS = get_args(PlanReason)
_PROPOSAL_REASONS = get_args(ProposalReason)
_FORMS: dict[str | None, PlanForm] = {None: "", "early": "early", "late": "late", "flat": "flat"}


def decide(state: State, opened: OpenRound) -> list[Plans]:
    """What is new; nothing if nothing is. Answers in the order of the requests."""
    if not (state.waiting or state.promises or state.broken or state.ended):
        return [] if state.plan_seq else [Plans(after=0)]
    plan = state.plan
    if plan is None:
        plan = state.plan = plan_of(state)
    plan.move_to(state.first)
    waiting: list[Asked] = [*state.looks, *state.retries, *ordered(state.waiting)]
    found = plan.search(waiting, state.rounds * WORK_MAX, state.policy.reservations_per_round_max)
    body = _plans_of(state, plan, found)
    body.wake_ms = _wake_ms(state, plan, found, body, opened.time)
    answered = sum(each.asked is not None for each in found)
    goes_on = plan.running is not None or len(found) < len(plan.found) or len(waiting) > answered or bool(state.due)
    if not (found or body.gone or goes_on or body.wake_ms != state.wake_ms):
        return []
    if goes_on and not found and not body.gone and state.rounds > ROUNDS_AT_ONCE:
        body.pauses = True
        body.wake_ms = min(opened.time + PAUSE_MS, opened.time + PAUSE_MS if body.wake_ms is None else body.wake_ms)
    plan.said = body
    return [body]


def plan_of(state: State) -> "CellPlan":
    """All promises of a cell, to plan with."""
    from services.planner.core.cell_plan import CellPlan  # With numpy: not before there is something to plan.

    return CellPlan(state.policy, state.step_ms, state.nodes, state.capacity, state.ceilings, state.promises)


def _plans_of(state: State, plan: "CellPlan", found: "list[Found]") -> Plans:
    """Answers and changed promises."""
    answers: list[PlanAnswer] = []
    progress: dict[str, list[AtomProgress]] = {}
    proposals: list[ProposalAnswer] = []
    gone = dict.fromkeys(state.ended, True)
    before, changed = plan.promised, {}
    for each in found:
        if isinstance(each.asked, Proposal):
            proposals.append(_weighed(each.asked.seq, each.answer))
        else:
            _answer(state, plan, each, answers)
            _note_progress(plan, each, progress)
        for name in _changed(before, each):
            changed[name] = True
            if each.asked is None or isinstance(each.asked, Proposal) or name != each.asked.reservation:
                _explain(plan, name, each, before, answers)
        before = each.after
    profiles = []
    for name in {**changed, **progress}:
        if name in before.known:
            profiles.append(_profile(plan, name, before, progress.get(name, [])))
        elif name in plan.promised.known or name in state.promises:
            gone[name] = True
    return Plans(state.plan_seq, answers, profiles, list(gone), proposals=proposals)


def _changed(before: "Promises", each: "Found") -> list[str]:
    """Names of promises that are not what they were."""
    found = []
    after = each.after
    for name in each.changed_since(before):
        known = after.known.get(name)
        if known is None and name not in before.known:
            continue
        is_new = known is None or name not in before.known or known.node is not before.known[name].node
        if is_new or after.leases(name) != before.leases(name):
            found.append(name)
    return found


def _answer(state: State, plan: "CellPlan", found: "Found", answers: list[PlanAnswer]) -> None:
    asked, answer = found.asked, found.answer
    if asked is None or isinstance(asked, Proposal):
        return
    if isinstance(asked, Restore):
        answers.append(_tried_again(state, asked.reservation, answer))
        return
    if isinstance(asked, Follow) and not answer.code:
        return  # Nothing is promised to it any more.
    accepted = answer.code in ("", "deleted", "ahead", "behind")
    published = PlanAnswer(asked.reservation, accepted, _reason(answer.code), answer.reason, form=_FORMS[answer.form])
    _offer(plan, answer, published)
    answers.append(published)


def _tried_again(state: State, name: str, answer: "Answer") -> PlanAnswer:
    if not answer.code:
        return PlanAnswer(name, True, "moved", AGAIN, form=_FORMS[answer.form])
    broken = state.broken[name]
    detail = f"{broken.why}; tried again: {answer.reason}"
    return PlanAnswer(name, False, "broken", detail, retry_until_ms=broken.until_ms)


def _note_progress(plan: "CellPlan", found: "Found", progress: dict[str, list[AtomProgress]]) -> None:
    """What a plan that follows its jobs has for its atoms; nothing any more once its owner has other terms."""
    asked = found.asked
    if asked is None or isinstance(asked, Proposal):
        return
    if isinstance(asked, Follow):
        progress[asked.reservation] = [
            AtomProgress(each.atom, each.units * plan.step_ms, each.missing) for each in found.answer.followed
        ]
    elif found.answer.code in ("", "deleted"):
        progress.pop(asked.reservation, None)


def _weighed(seq: int, answer: "Answer") -> ProposalAnswer:
    assert answer.code in _PROPOSAL_REASONS, f"no answer to a proposal is {answer.code}"
    return ProposalAnswer(seq, not answer.code, cast(ProposalReason, answer.code), answer.reason)


def _reason(code: str) -> PlanReason:
    assert code in _REASONS, f"no reason is {code}"
    return cast(PlanReason, code)


def _offer(plan: "CellPlan", answer: "Answer", published: PlanAnswer) -> None:
    offer = answer.offer
    if offer is None:
        return
    if offer.window is not None:
        published.offer_from_ms, published.offer_to_ms = (step * plan.step_ms for step in offer.window)
    published.size_permille = offer.size_permille
    if offer.sizes:
        published.detail += f"; it would be accepted with {offer.sizes}"


def _explain(plan: "CellPlan", name: str, found: "Found", before: "Promises", answers: list[PlanAnswer]) -> None:
    """Why a promise changed that nobody asked to change."""
    if name in found.broken:
        lacking = _lacking(plan, name, found, before)
        detail = f"the cell has lost capacity: {lacking}; no plan that was tried keeps all promises"
        until_ms = plan.retry_until_ms(name, before)
        answers.append(PlanAnswer(name, False, "broken", detail, retry_until_ms=until_ms))
        return
    if found.asked is None:
        why = "after a loss of capacity"
    elif isinstance(found.asked, Proposal):
        why = "the solver found a plan with fewer starts and ends"
    else:
        why = f"to make room for {found.asked.reservation}"
    answers.append(PlanAnswer(name, True, "moved", why))


def _lacking(plan: "CellPlan", name: str, found: "Found", before: "Promises") -> str:
    """Which part of a broken promise had no room any more, and of which resource there was too little, in words."""
    lack = found.lack
    assert lack is not None, f"{name}: promises are broken by repairs alone"
    leases = sorted(before.plan(name), key=lambda each: each[0].path)  # A planner that starts over has another order.
    hit = [atom for atom, mine in leases if any(each.begin <= lack.step < each.end for each in mine)]
    asking = [atom for atom in hit or [atom for atom, _ in leases] if lack.resource is None or atom.unit[lack.resource]]
    part = f" of its atom {asking[0].path}" if asking else ""
    if lack.resource is None:
        return f"no node has room for all units{part}"
    kind = next(kind for kind, i in plan.grid.resources.items() if i == lack.resource)
    return f"too little {kind} is left for the leases{part}"


def _profile(plan: "CellPlan", name: str, promises: "Promises", progress: list[AtomProgress]) -> PlanProfile:
    from services.planner.planning.limits import queue_of  # With numpy, as above.

    known = promises.known[name]
    leases = promises.plan(name)
    steps = [_step(plan, atom, each.begin, each.end, each.gangs) for atom, mine in leases for each in mine]
    steps.sort(key=lambda step: (step.from_ms, step.atom, step.to_ms, step.units))
    return PlanProfile(name, queue_of(known.user), steps, _order(known.node, leases), progress)


def _step(plan: "CellPlan", atom: Atom, begin: int, end: int, gangs: int) -> PlanStep:
    units = gangs * atom.gang
    unit = {resource: atom.unit[i] for resource, i in plan.grid.resources.items() if atom.unit[i]}
    usage = {resource: need * units for resource, need in unit.items()}
    return PlanStep(begin * plan.step_ms, end * plan.step_ms, usage, unit, units, atom.gang, atom.path)


def _order(node: Node, leases: Plan) -> list[AtomOrder]:
    """Which parts start after which, of those that are served, by every `order` on the way."""
    after: dict[str, str] = {}
    _collect_order(node, {atom.path: True for atom, _ in leases}, after)
    return [AtomOrder(path, [before]) for path, before in after.items()]


def _collect_order(node: Node, served: dict[str, bool], after: dict[str, str]) -> None:
    """By part, the one just before it: an entry for each branch. One for each pair of atoms would be the square."""
    if isinstance(node, Atom):
        return
    for branch in node.of:
        _collect_order(branch, served, after)
    if node.kind in ("order", "order_no_gap"):
        parts = [_part([atom.path for atom in atoms(branch) if atom.path in served]) for branch in node.of]
        after.update((part, before) for before, part in pairwise(part for part in parts if part))


def _part(paths: list[str]) -> str:
    """The smallest part in which all of these atoms lie; empty if there are none."""
    if not paths:
        return ""
    alike = takewhile(
        lambda names: len(dict.fromkeys(names)) == 1, zip(*(path.split(".") for path in paths), strict=False)
    )
    return ".".join(names[0] for names in alike)


def _wake_ms(state: State, plan: "CellPlan", found: "list[Found]", body: Plans, now_ms: int) -> int | None:
    """When the next lease begins or ends, a step that cannot be kept comes near, jobs are to be looked at again, or a
    broken promise is tried again no more."""
    now = now_ms // plan.step_ms
    promises = found[-1].after if found else plan.promised
    edge, later = plan.next_edge(promises, now, found), plan.over_later()
    edges = [] if edge is None else [edge]
    if later is not None:
        edges.append(later - plan.check)
    if follows(state):
        edges.append(now + 1)
    restored = {profile.reservation: True for profile in body.profiles}
    ends = [broken.until_ms for name, broken in state.broken.items() if name not in restored]
    ends += [answer.retry_until_ms for answer in body.answers if answer.retry_until_ms is not None]
    ends += [min(edges) * plan.step_ms] if edges else []
    return min(ends, default=None)
