"""Where more is promised than there is, in the sum or on nodes."""

from itertools import pairwise

import numpy as np

from services.planner.planning.agents import Agent
from services.planner.planning.node_fit import moments
from services.planner.planning.search import Search

NODE_MOMENTS_MAX = 16
"""Whether units fit on nodes is looked at again after a loss of capacity, at so many changes of the plan from now on:
later ones follow as time goes on."""


def over_from(agent: Agent, first: int, until: int) -> list[tuple[int, int]]:
    """The steps in `[first, until)` at which more is promised than there is."""
    edges, used = agent.book.used.span(first, max(first + 1, until))
    most = np.array(agent.book.capacity, np.int64)[:, np.newaxis]
    over = np.flatnonzero((used > most).any(axis=0)).tolist()
    return [(int(edges[i]), int(edges[i + 1])) for i in over]


def lacking(agent: Agent, first: int, until: int) -> Search[list[tuple[int, int]]]:
    """The same, and where what is promised does not fit on the nodes, as far as the first NODE_MOMENTS_MAX changes."""
    found = over_from(agent, first, until)
    shapes = agent.book.large_units() if agent.book.nodes is not None else {}
    steps = moments(shapes, first, until, NODE_MOMENTS_MAX) if shapes else []
    for step, then in pairwise([*steps, until]):
        yield
        if agent.book.lacks_nodes_at(shapes, step):
            found.append((step, then))
    return sorted(found)
