"""Queues as JSON documents: the tree with limits, shares and jobs. Shares are fractions of the cell, 0 to 1."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from largesse.lifecycle.promises import active
from largesse.lifecycle.queue_policy import ignored_of_max, with_shares
from largesse.lifecycle.slots import slots_of
from schemas import Policy, Queue, Vector
from schemas.edge.queues import weight_number
from schemas.presets import PRESETS, Preset
from schemas.quantities import SHARE_UNITS, SLOTS, quantity_texts
from schemas.queue_tree import QUEUE_DEFAULT, below, upwards, walk, with_default
from schemas.shares import Breach, QueueShare
from schemas.sharing import LIST_POLICIES, Sharing
from services.gateway.documents import Document
from services.gateway.documents.counting import added, capacity_of, used_by
from services.gateway.documents.reserved_waits import ReservedWaits
from services.gateway.view.state import State, said_of, stage_class_key


@dataclass(slots=True)
class _Sum:
    """The sum of the leaves below a queue."""

    used: Vector = field(default_factory=dict)
    promised: Vector = field(default_factory=dict)
    covered: Vector = field(default_factory=dict)  # Of `promised`, what jobs hold.
    waiting: int = 0
    running: int = 0
    parked: int = 0

    def is_any(self) -> bool:
        """Whether there are jobs, or tasks that hold something."""
        return bool(self.waiting or self.running or any(self.used.values()) or any(self.promised.values()))

    def take(self, other: "_Sum") -> None:
        added(self.used, other.used)
        added(self.promised, other.promised)
        added(self.covered, other.covered)
        self.waiting += other.waiting
        self.running += other.running
        self.parked += other.parked


def queue_document(state: State) -> Document:
    """The tree, queue by queue: weight, policy and limits as the config says (`policy_in_force`: its own, or that from
    above); `guaranteed`, `fair`, `lent` as fairness published them last (null: the root, which has no siblings, and
    inside a list, which has them as a whole); `allocated`, `borrowed`, `resource` and `used` as it is now (under
    `slots` places count, which `used` tells beside what tasks ask for); jobs that have not ended, of those that wait so
    many `parked` by `running_jobs_max`; `breach` where a guarantee is broken.

    Without a tree every job is a leaf of its own, and a queue only a name: below the root stand the names in use.
    `promised`: what reservations of the queue may have now, used or not; it is not part of the shares, which are of
    what promises leave, and what is held of it is not borrowed. `held` and `target` are older names: what it holds, and
    what it is entitled to now (null: it asks for nothing). `ignored`: of `limits`, by name, the resources of which they
    do not count under the preset, or below a list. The root says the `preset`, too.
    """
    sums: dict[str, _Sum] = {}
    for queue, used in used_by(state).items():
        sums.setdefault(queue, _Sum()).used = {**state.used[queue], **used}
    for job in state.jobs.values():
        at = sums.setdefault(job.spec.queue, _Sum())
        if job.started_ms is None:
            at.waiting += 1
            at.parked += not job.began
        else:
            at.running += 1
    if state.policy.reservations == "on":
        _add_promised(state, sums)
    whole = _Sum()
    for leaf in sums.values():  # Also what is still held for queues that are gone.
        whole.take(leaf)
    tree = _tree(state.queues, sums)
    preset = state.policy.preset
    levelled, ignored = with_shares(state.queues, preset), ignored_limits(tree, preset)
    cell = _Cell(state, capacity_of(state), sums, levelled, ignored, broken_guarantees(state))
    document, _ = _queue(cell, tree, "", tree.policy or PRESETS[state.policy.preset].sharing)
    return document | _held(cell, "", whole) | {"preset": state.policy.preset}


def _add_promised(state: State, sums: dict[str, _Sum]) -> None:
    """Adds what accepted reservations may have now, and how much of it their jobs hold."""
    reserved = ReservedWaits(state)
    for row in state.reservations.values():
        promised: Vector = {}
        for step in active(row.steps, state.time) if row.state == "accepted" else ():
            added(promised, step.usage)
        if promised:
            total, held = sums.setdefault(row.queue, _Sum()), reserved.held(row.reservation)
            added(total.promised, promised)
            added(total.covered, {kind: min(amount, held.get(kind, 0)) for kind, amount in promised.items()})


def _tree(tree: Queue | None, sums: dict[str, _Sum]) -> Queue:
    """The tree in force; without one, a queue for each name that jobs use."""
    if tree is not None and tree.children:
        return with_default(tree)
    names = {} if tree is not None else {QUEUE_DEFAULT: True}
    names |= {path: True for path, leaf in sorted(sums.items()) if leaf.is_any()}
    return replace(tree or Queue("root"), children=[Queue(name) for name in names])


def settings_document(queue: Queue) -> Document:
    """Settings of one queue, with quantities as strings."""
    limits = {
        "guaranteed": quantity_texts(queue.guaranteed),
        "max": quantity_texts(queue.max),
        "running_jobs_max": queue.running_jobs_max,
        "user_jobs_max": queue.user_jobs_max,
        "user_running_max": queue.user_running_max,
        "submitters": queue.submitters,
    }
    return {"weight": weight_number(queue.weight), "policy": queue.policy or None, "limits": limits}


def ignored_limits(tree: Queue, preset: Preset) -> dict[str, dict[str, list[str]]]:
    """By path and limit (`guaranteed`, `max`), the resources of which the limit does not count."""
    facts, shared = PRESETS[preset], with_shares(tree, preset)
    found = {}
    for path, queue in walk(tree):
        counts = facts.has_queues and path in shared
        void = [kind for kind in queue.guaranteed if not counts or (facts.counts_slots and kind != SLOTS)]
        found[path] = {"guaranteed": void, "max": ignored_of_max(preset, queue.max)}
    return found


@dataclass(slots=True)
class _Cell:
    state: State
    capacity: Vector
    sums: dict[str, _Sum]
    levelled: dict[str, bool]
    ignored: dict[str, dict[str, list[str]]]
    broken: dict[str, Breach]


def broken_guarantees(state: State) -> dict[str, Breach]:
    """By queue, the guarantees that are broken: not those of queues in which all that waits could run on no available
    node, whatever ran there.
    """
    if not state.breaches:
        return {}
    able: dict[str, bool] = {}  # By queue with waiting tasks, whether a node could run some of them.
    for job in state.jobs.values():
        for asked, stage in zip(job.asked, job.graph.stages, strict=True):
            if asked:
                could_run = said_of(state, stage_class_key(job.spec, stage)) != "no_node"
                for path in upwards(job.spec.queue):
                    able[path] = could_run or able.get(path, False)
    return {path: breach for path, breach in state.breaches.items() if able.get(path, True)}


def _queue(cell: _Cell, queue: Queue, path: str, policy: Sharing) -> tuple[Document, _Sum]:
    total = cell.sums.get(path) or _Sum()
    if policy not in LIST_POLICIES:  # A list takes all jobs below it, whatever the queues there name.
        policy = queue.policy or policy
    children = []
    if queue.children:
        total = _Sum()
        for child in queue.children:
            document, more = _queue(cell, child, below(path, child.name), policy)
            children.append(document)
            total.take(more)
    level = cell.state.levels.get(path)
    breach = cell.broken.get(path)
    return {
        "queue": path,
        **settings_document(queue),
        "ignored": cell.ignored[path],
        "policy_in_force": policy,
        **_held(cell, path, total),
        "target": None if level is None else _part(level),
        "breach": None if breach is None else _breach(breach),
        "short_since_ms": None if (short := cell.state.short.get(path)) is None else short.since_ms,
        "children": children,
    }, total


def _held(cell: _Cell, path: str, total: _Sum) -> Document:
    """What a queue holds now, and the shares that fairness gave it last."""
    # Of a queue that never had a permille of the cell, fairness has said nothing. The root has no share of its own.
    levelled = path != "" and path in cell.levelled
    share = cell.state.shares.get(path, QueueShare(path, 0, 0, 0, 0, 0, "")) if levelled else None
    used = {resource: amount for resource, amount in sorted(total.used.items()) if amount}
    allocated, resource = _dominant(used, cell.capacity)
    borrowed = None if share is None else max(0, _dominant(_own(total), cell.capacity)[0] - share.guaranteed)
    return {
        "guaranteed": None if share is None else _part(share.guaranteed),
        "fair": None if share is None else _part(share.fair),
        "allocated": _part(allocated),
        "lent": None if share is None else _part(share.lent),
        "borrowed": None if borrowed is None else _part(borrowed),
        "resource": resource,
        "held": _part(allocated),
        "used": quantity_texts(used),
        "promised": quantity_texts(dict(sorted(total.promised.items()))),
        "jobs": {"waiting": total.waiting, "running": total.running, "parked": total.parked},
    }


def held_shares(state: State, paths: Iterable[str]) -> dict[str, int]:
    """What tasks of each of these queues hold now, promised to it or not, in 10^-9 of the cell: as `allocated` of a
    queue's document."""
    return {path: held for path, (held, _) in holdings(state, state.policy, paths).items()}


def holdings(state: State, policy: Policy, paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    """By queue, what its tasks hold now of the whole cell, and that without what is promised to it, in 10^-9, in the
    units that count under a policy."""
    slots = slots_of(policy)
    sums: dict[str, _Sum] = {}
    if policy.reservations == "on":
        _add_promised(state, sums)
    for leaf, amounts in state.used.items():
        sums.setdefault(leaf, _Sum()).used = {SLOTS: state.tasks.get(leaf, 0)} if slots else amounts
    found = {path: _Sum() for path in paths}
    for leaf, held in sums.items():
        for path in upwards(leaf) if any(held.used.values()) else ():
            if path in found:
                found[path].take(held)
    capacity = capacity_of(state, policy)
    return {
        path: (_dominant(held.used, capacity)[0], _dominant(_own(held), capacity)[0]) for path, held in found.items()
    }


def _own(held: _Sum) -> Vector:
    """What tasks hold that no promise covers."""
    return {resource: amount - held.covered.get(resource, 0) for resource, amount in held.used.items()}


def _dominant(used: Vector, capacity: Vector) -> tuple[int, str | None]:
    """The dominant share in 10^-9 of the cell, and its resource: the first by name if there are several."""
    share, resource = 0, None
    for kind, amount in used.items():
        if capacity.get(kind, 0) > 0 and (part := amount * SHARE_UNITS // capacity[kind]) > share:
            share, resource = part, kind
    return share, resource


def _breach(breach: Breach) -> Document:
    return {
        "since_ms": breach.since_ms,
        "guaranteed": _part(breach.guaranteed),
        "allocated": _part(breach.allocated),
        "winner": breach.winner or None,
        "placeable": breach.placeable,
    }


def _part(share: int) -> float:
    return share / SHARE_UNITS
