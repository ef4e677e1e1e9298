"""Refusals that the planners do not know of: a search that took too much, and a queue whose maximum is in the way."""

from collections.abc import Mapping, Sequence

from schemas.quantities import quantity_text
from services.planner.core.found import Asked
from services.planner.core.waiting import Request, Restore
from services.planner.planning.agents import Agent
from services.planner.planning.answers import Answer, GridRequest
from services.planner.planning.book import UNLIMITED
from services.planner.planning.limits import owner_of
from services.planner.planning.node_fit import NodeClass, units_in
from services.planner.planning.read_rdl import BadRdl
from services.planner.planning.request import Atom, Node, inside
from services.planner.planning.search import Search

PAST = (
    "its window ends before the next step begins; a time like 30m counts from 1 January 1970, one like +30m from the "
    "submission"
)
FAR = (
    "its window begins later than is planned, which is reservation_horizon_ms ahead (7 days, if nobody has changed it)"
)


GIVEN_BACK = "it was given back before it was answered"

REQUEST_WORK_MAX = 500_000
"""What is looked at for a request at most, as planning/book.py counts: a little more than half a second."""

RETRY_WORK_MAX = 50_000
"""The same for a broken promise that is tried again."""

RESTARTS_MAX = 6
"""Each new step that ends a search halves what the next may take, so often at most."""


def is_spent(asked: Asked | None, work: int) -> bool:
    """Whether the search for a request has taken what it may."""
    if isinstance(asked, Restore):
        return work >= RETRY_WORK_MAX
    if not isinstance(asked, Request) or asked.kind == "delete":
        return False
    return work >= REQUEST_WORK_MAX >> min(asked.restarts, RESTARTS_MAX)


def too_hard() -> str:
    """Why such a request is refused."""
    return (
        f"no plan was found within {REQUEST_WORK_MAX:,} steps of search, which is what one request may take: ask for "
        "fewer atoms, for more at a time (h), or for a wider window"
    )


def check_nodes(node: Node, nodes: Sequence[NodeClass]) -> None:
    """Raises BadRdl where the nodes together hold no gang of an atom, though their sum would."""
    if isinstance(node, Atom):
        units = units_in(node.unit, nodes)
        if units < node.gang:
            text = f"nodes have room for {units} units of atom {node.path} at a time, and it needs {node.gang}"
            raise BadRdl("rdl", f"{text} (g): no unit spans nodes")
    elif node.kind == "any":
        faults = []
        for branch in node.of:
            try:
                check_nodes(branch, nodes)
            except BadRdl as fault:
                faults.append(fault)
        if len(faults) == len(node.of):
            raise faults[0]
    else:
        for branch in node.of:
            check_nodes(branch, nodes)


def named(agent: Agent, resources: Mapping[str, int], request: GridRequest, answer: Answer) -> Search[Answer]:
    """The same answer; where a request has room but for the limit of its owner, or the maximum of a queue, one that
    names what is in the way."""
    book = agent.book
    if book.owner_most is not None:
        with book.without_owner_limit():
            found = yield from agent.finding(request.user, inside(request.body, request.begin, request.end))
        if found is not None:
            book.give_back(request.user, found.plan)
            return Answer("limit", _over_owner_limit(request.user, resources, book.owner_most), offer=answer.offer)
    for path in book.queues_above(request.user):
        most = book.maxima[path]
        book.maxima[path] = (UNLIMITED,) * len(most)
        try:
            found = yield from agent.finding(request.user, inside(request.body, request.begin, request.end))
        finally:
            book.maxima[path] = most
        if found is not None:
            book.give_back(request.user, found.plan)
            return Answer("limit", _over_maximum(path, resources, most), offer=answer.offer)
    return answer


def _over_owner_limit(user: str, resources: Mapping[str, int], most: Sequence[int]) -> str:
    amounts = ", ".join(f"{kind} {quantity_text(kind, most[i])}" for kind, i in resources.items())
    return (
        f'with this, user "{owner_of(user)}" would have more promised at a time than one user may ({amounts}: knob '
        "reservation_user_permille): ask for fewer units at a time (h, and g), for another time, or let an operator "
        "raise the knob"
    )


def _over_maximum(path: str, resources: Mapping[str, int], most: Sequence[int]) -> str:
    amounts = [f"{kind} {quantity_text(kind, most[i])}" for kind, i in resources.items() if most[i] != UNLIMITED]
    queues = f'queue "{path}" and those below it' if path else "all queues together, the root of the tree,"
    return (
        f"with this, {queues} would have more promised than their max ({', '.join(amounts)}): ask for fewer units at a "
        "time (h, and g), for another time, or raise max"
    )
