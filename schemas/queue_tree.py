"""Walks of the queue tree that more than one service needs: paths, what holds for a queue from above, who lives where.

A queue's path is the names from below the root down, joined by "/"; the root's own is "".
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from schemas.policy import Policy
from schemas.presets import PRESETS
from schemas.queues import Queue
from schemas.sharing import PLANNED_SHARINGS
from schemas.wording import plural

QUEUE_DEFAULT = "default"


def below(path: str, name: str) -> str:
    """The path of a child."""
    return f"{path}/{name}" if path else name


def walk(tree: Queue, path: str = "") -> Iterator[tuple[str, Queue]]:
    """Every queue with its path, parents before their children, in the order of the tree."""
    yield path, tree
    for child in tree.children:
        yield from walk(child, below(path, child.name))


def leaf_paths(tree: Queue) -> list[str]:
    """Paths of the leaves, in the order of the tree; "" for a root that is itself a leaf."""
    return [path for path, queue in walk(tree) if not queue.children]


def upwards(path: str) -> Iterator[str]:
    """The path, and those of all queues above it up to the root's."""
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""


def is_below(path: str, above: str) -> bool:
    """Whether a queue is the one `above`, or below it."""
    return not above or f"{path}/".startswith(f"{above}/")


def user_limits(tree: Queue | None) -> dict[str, int]:
    """By path of a queue that says so, how many tasks of one user run there at a time."""
    found: dict[str, int] = {}
    for path, queue in walk(tree) if tree is not None else ():
        if queue.user_running_max is not None:
            found[path] = queue.user_running_max
    return found


def tree_conflict(policy: Policy, tree: Queue | None) -> tuple[str, str] | None:
    """The path of the first queue whose own policy cannot count under the preset, and what is wrong; None: all can."""
    if PRESETS[policy.preset].plans_jobs and tree is not None:
        for path, queue in walk(tree):
            if queue.policy not in PLANNED_SHARINGS:
                known = ", ".join(name for name in PLANNED_SHARINGS if name)
                text = (
                    f'queue "{path or tree.name}" has the policy {queue.policy}, which does not count under the preset'
                )
                why = f"{text} {policy.preset}: it plans the jobs of all queues together, whose shares follow {known}"
                return path, f"{why}. Leave the policy of that queue out, or take another preset"
    return None


def with_default(tree: Queue) -> Queue:
    """The tree with a leaf `default` of weight 1 below the root, for jobs that name no queue."""
    if not tree.children or any(child.name == QUEUE_DEFAULT for child in tree.children):
        return tree
    return replace(tree, children=[*tree.children, Queue(QUEUE_DEFAULT)])


def stranded(tree: Queue, jobs: Mapping[str, int], before: Queue | None) -> str | None:
    """Why a tree cannot take the place of the one `before` while `jobs` live, so many by queue; None: it can.

    Names the first queue that the tree has not got, or has as an inner one, and how many more there are. A tree that is
    only its root takes any job, but those that were admitted to a leaf would lose that leaf's limits.
    """
    queues = dict(walk(tree))
    if not tree.children and (before is None or not before.children):
        return None
    lost = [path for path, count in jobs.items() if count and (path not in queues or queues[path].children)]
    if not lost:
        return None
    path, count, others = lost[0], jobs[lost[0]], len(lost) - 1
    what = "would have queues below it" if path in queues else "would be gone"
    text = f'queue "{path}" {what}, and has {plural(count, "live job")}; let them end or cancel them'
    return f"{text}, and the same in {plural(others, 'other queue')}" if others else text
