"""Queue trees as the edge takes them, for properties."""

from typing import get_args

from hypothesis import strategies as st

from schemas.edge.queues import LEAF_POLICIES, RUNNING_JOBS_MAX, WEIGHT_MAX
from schemas.quantities import MILLIONTHS, QUANTITY_MAX
from schemas.queues import Queue
from schemas.sharing import Sharing

RESOURCES = ("cpu", "gpu", "memory", "disk", "network", "disk_io", "licence")
names = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=4)
amounts = st.one_of(st.integers(1, 5_000), st.sampled_from([1 << 10, 1 << 20, 3 << 20, 10**6, QUANTITY_MAX >> 8]))
vectors = st.dictionaries(st.sampled_from(RESOURCES), amounts, max_size=3)


def added(queues):
    """What queues are guaranteed together; one that says nothing of a resource stands for those below it."""
    total: dict[str, int] = {}
    for queue in queues:
        for kind, amount in (added(queue.children) | queue.guaranteed).items():
            total[kind] = total.get(kind, 0) + amount
    return total


@st.composite
def queue_trees(draw, name="root", depth=0):
    """A tree that the edge takes: nothing is guaranteed beyond what a queue above may give."""
    below = (
        draw(st.lists(names.filter(lambda name: name != "root" and not name.startswith("-")), unique=True, max_size=3))
        if depth < 3
        else []
    )
    children = [draw(queue_trees(name, depth + 1)) for name in below]
    claims = added(children)
    guaranteed = {kind: amount + claims.get(kind, 0) for kind, amount in draw(vectors).items()}
    claims |= guaranteed
    most = {kind: amount + claims.get(kind, 0) for kind, amount in draw(vectors).items()}
    if "licence" not in claims and draw(st.booleans()):
        most["licence"] = 0
    return Queue(
        name,
        draw(st.integers(1, WEIGHT_MAX * MILLIONTHS)),
        children,
        draw(st.sampled_from(("", *(get_args(Sharing) if children else LEAF_POLICIES)))),
        dict(sorted(guaranteed.items())),
        dict(sorted(most.items())),
        draw(st.none() | st.integers(1, RUNNING_JOBS_MAX)),
        draw(st.lists(names, unique=True, max_size=3)),
    )
