"""Which queues get a level of their own, and in what order jobs are served below them.

A queue's policy holds for it and all below it; at the top the preset says. One that orders jobs takes all jobs of its
subtree as one list: the subtree's top queue alone gets a level, and whatever the queues below it name counts for
nothing (H-DRF, section 4.3: recursive scheduling). Where jobs are planned, what is left over is one list of all jobs
too, and yet every leaf has its level, for what its jobs need now.
"""

from collections.abc import Mapping
from typing import NamedTuple, cast

from schemas.policy import Policy
from schemas.presets import PRESETS, Preset
from schemas.quantities import SLOTS, Vector
from schemas.queue_tree import below, upwards
from schemas.queues import Queue
from schemas.sharing import LIST_POLICIES, ServingOrder, Sharing


def uses_shadow_order(policy: Policy) -> bool:
    """Whether jobs are served in the order of the shadow cluster: not with `altruism` off, where each has its share."""
    return PRESETS[policy.preset].has_shadow and policy.altruism == "on"


class Group(NamedTuple):
    """`path`: the queue that has the level; "" is the whole cell, which needs none. `order`: of the jobs below it."""

    path: str
    order: ServingOrder


def order_of(preset: Preset) -> ServingOrder | None:
    """How the jobs of a cell without queues are served; None where no order among them is the preset's own. (`fifo`
    is more than an order: no job in the cell may overtake the head.)"""
    facts = PRESETS[preset]
    if facts.plans_jobs:
        return "giving"
    is_list = facts.sharing in LIST_POLICIES and facts.has_queues
    return cast(ServingOrder, facts.sharing) if is_list else None


def ignored_of_max(preset: Preset, limit: Vector) -> list[str]:
    """Resources of which a queue's `max` does not hold under the preset; placement keeps to all others."""
    facts = PRESETS[preset]
    if not facts.has_queues:
        return list(limit)
    return [kind for kind in limit if kind != SLOTS] if facts.counts_slots else []


def groups(tree: Queue | None, preset: Preset, of_hdrf: ServingOrder = "drf") -> dict[str, Group]:
    """The group of every leaf, by its path, in the order of the tree. Empty where there is no tree, or only a root.
    `of_hdrf`: how jobs are served in queues whose policy is H-DRF, which says nothing of jobs.
    """
    found: dict[str, Group] = {}
    if tree is not None and tree.children:
        facts = PRESETS[preset]
        _collect(found, tree, "", facts.sharing, None, "giving" if facts.plans_jobs else of_hdrf)
    return found


def with_shares(tree: Queue | None, preset: Preset) -> dict[str, bool]:
    """Paths of the queues that fairness gives shares; those inside a list have none: it is served as a whole."""
    tops = {group.path: True for group in groups(tree, preset).values()}
    return {path: True for top in tops for path in upwards(top)}


def cell_list(found: Mapping[str, Group]) -> ServingOrder | None:
    """The order in which the jobs of all queues are served as one list; None where they are not. Of the order `giving`
    only what the levels of the leaves leave over is such a list.
    """
    first = next(iter(found.values()), None)  # Where one is in such a list, all are.
    return first.order if first is not None and (not first.path or first.order == "giving") else None


def serving_leaf(found: Mapping[str, Group], queue: str) -> str:
    """Where the jobs of a queue are served: in the queue whose level counts for them or, in a list of the whole cell,
    in their own; "" where there are no queues.
    """
    group = found.get(queue)
    return (group.path or queue) if group is not None else ""


def _collect(
    found: dict[str, Group], queue: Queue, path: str, above: Sharing, one: Group | None, of_hdrf: ServingOrder
) -> None:
    """`above`: the policy in force at the parent; `one`: the list that all from here down belong to; `of_hdrf`: how
    jobs are served where the policy says nothing of them.
    """
    policy = queue.policy or above
    if one is None and policy in LIST_POLICIES:
        one = Group(path, cast(ServingOrder, policy))
    if not queue.children:
        order: ServingOrder = "fifo" if policy == "capacity" else of_hdrf if policy == "hdrf" else "drf"
        found[path] = one or Group(path, "giving" if of_hdrf == "giving" else order)
    for child in queue.children:
        _collect(found, child, below(path, child.name), policy, one, of_hdrf)
