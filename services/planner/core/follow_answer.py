"""Lets the plan of a promise follow its jobs, and says what became of it."""

from collections.abc import Mapping, Sequence

from services.planner.core.waiting import Follow, Need
from services.planner.planning.agents import Agent
from services.planner.planning.answers import Answer, Followed
from services.planner.planning.following import Wanted, chained_atoms, following, release, steps_from
from services.planner.planning.request import Atom, Lease, atoms
from services.planner.planning.residual import Known, joined
from services.planner.planning.search import Search


def follow(agent: Agent, known: dict[str, Known], asked: Follow, step_ms: int) -> Search[Answer]:
    """Changes the plan of a promise as its atoms need it, as far as that may be."""
    name = asked.reservation
    if name not in known:
        return Answer()  # Broken just now.
    before = _spans(agent, known, name)
    wanted = [_wanted(need, *before[need.atom], agent.first, step_ms) for need in asked.needs if need.atom in before]
    if not (yield from following(agent, known, name, wanted)):
        return Answer("ahead", "all its work is done: what was left of its promise is given back")
    after = _spans(agent, known, name)
    if all(each.end < agent.first for _, leases in after.values() for each in leases):
        release(agent, known, name)  # Only what ran late has kept it.
        del known[name]
        return Answer("behind", "its leases are over while tasks run late, and its window has no room for longer ones")
    followed, texts = [], []
    terms = {atom.path: atom for atom in atoms(known[name].node)}
    chains = dict.fromkeys(chained_atoms(known[name].node), True)
    for need in asked.needs:
        gang, leases = after.get(need.atom, (1, []))
        missing = need.left - _planned_ms(leases, gang, need.at_ms, step_ms)
        followed.append(Followed(need.atom, gang * steps_from(leases, 0), missing))
        chained = need.atom in chains
        atom = terms.get(need.atom)
        if atom is None:
            why = ""
        elif need.left > need.planned:
            why = _why_missing(need, atom, leases, step_ms, chained=chained)
        else:
            why = _why_kept(need, atom, leases, agent.first, step_ms, chained=chained)
            is_little = -missing < gang * step_ms
            why = "" if is_little and missing > need.left - need.planned else why
        texts.append(_text(need, missing, why))
    is_behind = any(need.left > need.planned for need in asked.needs)
    return Answer("behind" if is_behind else "ahead", "; ".join(texts), followed=followed)


def _spans(agent: Agent, known: Mapping[str, Known], name: str) -> dict[str, tuple[int, list[Lease]]]:
    """By atom that a promise serves: units in a gang, and leases."""
    held = agent.held.get(name)
    plan = joined(known[name].begun, held.plan if held is not None else [])
    return {atom.path: (atom.gang, leases) for atom, leases in plan}


def _wanted(need: Need, gang: int, leases: Sequence[Lease], first: int, step_ms: int) -> Wanted:
    """What an atom needs from step `first` on: less what its leases have until then."""
    unit = gang * step_ms
    soon = _planned_ms(leases, gang, need.at_ms, step_ms) - unit * steps_from(leases, first)
    past = sum((min(each.end, first) - each.begin) * each.gangs for each in leases if each.begin < first)
    steps = min(-(-max(0, need.left - soon) // unit), max(0, need.most // unit - past))
    return Wanted(need.atom, steps, need.left > need.planned, not need.left)


def _planned_ms(leases: Sequence[Lease], gang: int, at_ms: int, step_ms: int) -> int:
    """Unit-milliseconds of leases from a time on."""
    spans = [(max(each.begin * step_ms, at_ms), each.end * step_ms, each.gangs) for each in leases]
    return gang * sum(max(0, end - begin) * gangs for begin, end, gangs in spans)


def _text(need: Need, missing: int, why: str) -> str:
    """One atom, with `missing` unit-milliseconds that the plan has too little for it, negative: too much; `why` it
    has, empty if that is nothing to speak of."""
    gap = need.left - need.planned
    text = f"atom {need.atom} needs {_seconds(abs(gap))} unit-seconds {'more' if gap > 0 else 'less'} than planned"
    if gap <= 0:
        if missing <= gap:
            return f"{text}: {why}"
        return f"{text}: {_seconds(missing - gap)} are given back" + (f"; the rest stays: {why}" if why else "")
    if missing <= 0:
        return f"{text}: leases are added or lengthened"
    if missing < gap:
        return f"{text}: {_seconds(gap - missing)} are added, and {why} for the rest"
    return f"{text}, and {why} for them"


def _why_kept(need: Need, atom: Atom, leases: Sequence[Lease], first: int, step_ms: int, *, chained: bool) -> str:
    """Why nothing of a plan is given back that has too much for an atom."""
    unit = atom.gang * step_ms
    coming = unit * steps_from(leases, first)
    if not coming:
        return "what is left of its leases ends with the step that has begun"
    if need.planned - need.left < unit:
        gang = f"{atom.gang} units" if atom.gang > 1 else "a unit"
        return f"a step of {gang} ({_seconds(unit)} unit-seconds) is the least that can be given back"
    soon = _planned_ms(leases, atom.gang, need.at_ms, step_ms) - coming
    if coming - max(0, need.left - soon) < unit:
        return "leases change from the next step on, and less than a step of it lies behind that"
    if chained:
        return "an order without gaps moves as a whole, and the parts behind it cannot begin sooner"
    return f"its leases have to last {_seconds(atom.lease * step_ms)} s (l)"


def _why_missing(need: Need, atom: Atom, leases: Sequence[Lease], step_ms: int, *, chained: bool) -> str:
    """Why a plan does not grow by all that is missing for an atom."""
    unit = atom.gang * step_ms
    if unit * (steps_from(leases, 0) + 1) > need.most:
        return "twice what was asked for, the most that a promise grows to, leaves nothing"
    if chained:
        return "its window has no room to move the parts of an order without gaps as a whole"
    return "its window has no room"


def _seconds(unit_ms: int) -> int:
    return -(-unit_ms // 1_000)
