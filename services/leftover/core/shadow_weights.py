"""What each leaf of the shadow cluster is guaranteed: parts by weight, handed down to the queues that have jobs."""

from schemas import Queue
from schemas.quantities import SHARE_UNITS
from schemas.queue_tree import below
from services.leftover.core.shadow_state import Cluster


# ---------------------------------------------------------------- leaves
def weigh(cluster: Cluster, tree: Queue | None) -> None:
    """Computes what each leaf is guaranteed: by weights, among the queues below which there are jobs."""
    cluster.weighs = False
    if tree is None or not tree.children or len(cluster.lines) == 1:
        for line in cluster.lines.values():
            line.part = SHARE_UNITS
        return
    _weigh_below(cluster, tree, "", SHARE_UNITS)


def _weigh_below(cluster: Cluster, queue: Queue, path: str, part: int) -> int:
    """Hands a queue's part down; how many jobs are below it."""
    line = cluster.lines.get(path)
    if line is not None:  # A leaf, or a queue that is served as one.
        line.part = part
        return line.live
    live = [
        (child, below(path, child.name)) for child in queue.children if _lives(cluster, child, below(path, child.name))
    ]
    weights = sum([child.weight for child, _ in live])
    return sum([_weigh_below(cluster, child, at, part * child.weight // max(1, weights)) for child, at in live])


def _lives(cluster: Cluster, queue: Queue, path: str) -> bool:
    line = cluster.lines.get(path)
    if line is not None:
        return line.live > 0
    return any(_lives(cluster, child, below(path, child.name)) for child in queue.children)
