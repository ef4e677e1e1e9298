"""What jobs are entitled to, before they give anything away (CARBYNE, section 3.1; docs/concepts/altruism.md).

Each job asks for the whole cell in the direction of its remaining work, and H-DRF fills the tree with the jobs as
children of their queues. Jobs of a queue whose work asks for the same kinds rise and stop together, so they stand in
the tree as one, with the sum of their directions; dominant share by weight is then the share of each. Worked out again
when jobs begin or are over, or capacity or queues change, and not for every task that ends.
"""

from collections.abc import Iterator

from largesse.lifecycle.entitlements import entitlement, key_of, queue_of
from largesse.lifecycle.remaining import direction_of, set_of, work_of
from schemas import Entitlement, Queue, Vector
from schemas.presets import PRESETS
from schemas.quantities import SHARE_UNITS
from schemas.queue_tree import below, walk
from schemas.sharing import LIST_POLICIES, Sharing
from services.fairness.accounts.queue_tree import accounts_for, put_leaf
from services.fairness.core.demands import Demands
from services.fairness.core.directions import Directions
from services.fairness.core.state import State
from services.fairness.core.tolerance import fits
from services.fairness.filling.levels import levels_in
from services.fairness.filling.shared_tree import SharedTree

_AS_HDRF = ("naive-hdrf", "capacity")
"""Policies whose tree is divided as under `hdrf` here: what jobs are entitled to depends on no holdings."""


def entitlements(state: State, *, full: bool) -> list[Entitlement]:
    """Entitlements that have moved since they were published; with `full` all."""
    published = state.entitled
    if not PRESETS[state.policy.preset].plans_jobs:
        return [entitlement(key, 0) for key in sorted(published)]
    if not state.freshness.entitles and not full:
        return []
    found = _filled(state) if state.freshness.entitles else published
    moved = [key for key, share in found.items() if full or published.get(key) != share]
    return [
        entitlement(key, found.get(key, 0)) for key in sorted([*moved, *(key for key in published if key not in found)])
    ]


def _filled(state: State) -> dict[str, int]:
    """By set of jobs, what each of its jobs is entitled to."""
    directions = _directions(state)
    leaves = _leaves(state.queues)
    tree, paths = _tree(state.queues, leaves, directions.sums)
    if not tree.children:
        return {}
    accounts, demands = accounts_for(tree, "hdrf", state.capacity.divided), Demands()
    for key, path in paths.items():
        sums = directions.sums[key]
        demand = {kind: part * state.capacity.divided[kind] // SHARE_UNITS for kind, part in sums.items()}
        demands.add(path, demand, 1, 0)
        put_leaf(accounts, path, demands.of(path))
    fit = fits(accounts, demands.total, state.capacity.divided)
    levels = levels_in(SharedTree(tree, "hdrf", accounts), None, {}, fits=fit).plain.levels
    found = {
        key: levels.get(path, 0) * SHARE_UNITS // max(directions.sums[key].values()) for key, path in paths.items()
    }
    return {key: share for key, share in found.items() if share}


def _directions(state: State) -> Directions:
    """Directions of all jobs, up to date."""
    directions: Directions | None = state.directions
    if directions is None:
        state.directions = directions = Directions(dict.fromkeys(state.jobs, True))
    for name in directions.stale:
        job = state.jobs.get(name)
        if job is None or not job.began or not job.queue:
            directions.put(name, "", {})
        else:
            direction = direction_of(work_of(job.graph, job.progress, job.seen), state.capacity.divided)
            directions.put(name, key_of(job.queue, set_of(direction)), direction)
    directions.stale = {}
    return directions


def open_entitlement(state: State) -> None:
    """A round begins."""
    state.freshness.entitles, state.freshness.entitlement_due = state.freshness.entitlement_due, False


def _leaves(tree: Queue | None) -> dict[str, bool]:
    if tree is None or not tree.children:
        return {}
    return {path: True for path, queue in walk(tree) if not queue.children}


def _tree(tree: Queue | None, leaves: dict[str, bool], sums: dict[str, Vector]) -> tuple[Queue, dict[str, str]]:
    """The tree with the sets of jobs below their queues, and the path of each set. A cell without queues is one queue;
    policies that order jobs, or depend on current holdings, define no entitlements."""
    sets: dict[str, list[str]] = {}
    for key in sorted(sums):
        queue = queue_of(key)
        sets.setdefault(queue if leaves else "", []).append(key)
    paths: dict[str, str] = {}
    if not leaves:
        return Queue("root", children=list(_sets_below("", sets.get("", []), sums, paths))), paths
    assert tree is not None
    return _with_sets(tree, "", sets, sums, paths), paths


def _with_sets(
    queue: Queue, path: str, sets: dict[str, list[str]], sums: dict[str, Vector], paths: dict[str, str]
) -> Queue:
    policy: Sharing = "hdrf" if queue.policy in LIST_POLICIES or queue.policy in _AS_HDRF else queue.policy
    children = [_with_sets(child, below(path, child.name), sets, sums, paths) for child in queue.children]
    if not queue.children:
        policy, children = "hdrf", list(_sets_below(path, sets.get(path, []), sums, paths))
    return Queue(queue.name, queue.weight, children, policy, queue.guaranteed, queue.max)


def _sets_below(path: str, keys: list[str], sums: dict[str, Vector], paths: dict[str, str]) -> Iterator[Queue]:
    for number, key in enumerate(keys):
        name = f"{number}"
        paths[key] = below(path, name)
        yield Queue(name, max(sums[key].values()))
