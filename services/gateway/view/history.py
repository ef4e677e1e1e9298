"""How the cell was over log time, in the gateway's view: a sample of sums at whole minutes, and fewer as it goes on.

What is kept covers the whole log: where more than `SAMPLES_MAX` boundaries would lie in it, every second one is dropped
and the interval doubles. No sample looks at all jobs or tasks, only at nodes, queues and reservations.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from json import dumps, loads
from typing import TypedDict

from largesse.lifecycle.promises import active
from largesse.lifecycle.queue_policy import with_shares
from largesse.lifecycle.slots import counted_capacity, slots_of
from schemas import Vector
from schemas.quantities import SHARE_UNITS, SLOTS
from schemas.queue_tree import with_default
from services.gateway.view.rounds import add_amounts
from services.gateway.view.state import Sample, State

SAMPLES_MAX = 720
"""Boundaries between the first and the latest one, at most."""

QUEUES_MAX = 50
"""Queues in a sample: those that hold most."""


Shares = tuple[int, int | None, int | None]
"""What a queue holds, what it is entitled to, and what it is guaranteed."""


class Numbers(TypedDict):
    """One sample: `jobs` that live, `waiting` tasks, `running` attempts; by resource `capacity` of nodes that are not
    lost, what is `held` there and `promised`; by top-level queue, `queues`: what it holds, what it is entitled to
    (None: it asks for nothing) and what it is guaranteed (None: it has no share of its own), in 10^-9 of the cell, of
    those that have any; `left_out`: how many more there are.
    """

    jobs: int
    waiting: int
    running: int
    capacity: Vector
    held: Vector
    promised: Vector
    queues: dict[str, Shares]
    left_out: int


def take_sample(state: State, time_ms: int) -> None:
    """A record of this time is about to be folded. Keeps how the cell was at a boundary that lies before it."""
    history = state.history
    if history.next_ms is None:
        history.first_ms = history.next_ms = _up(time_ms, history.every_ms)
        return
    if time_ms <= history.next_ms:
        return
    _keep(history.samples, history.next_ms, dumps(numbers_of(state), separators=(",", ":")))
    every_ms = history.every_ms
    while _down(time_ms - 1, every_ms) - history.first_ms >= SAMPLES_MAX * every_ms:
        every_ms *= 2
        history.first_ms = _up(history.first_ms, every_ms)
    last_ms = _down(time_ms - 1, every_ms)
    if every_ms != history.every_ms:
        history.every_ms, finer, history.samples = every_ms, history.samples, []
        for at_ms, samples in groupby(finer, lambda sample: _up(sample.at_ms, every_ms)):
            if at_ms <= last_ms:  # Else it is still to come.
                *_, latest = samples
                _keep(history.samples, at_ms, latest.numbers)
    history.next_ms = last_ms + every_ms


def samples_at(state: State, times_ms: Iterable[int]) -> Iterator[Numbers]:
    """How the cell was at each of these times, which are ascending boundaries before `next_ms`."""
    left, numbers = iter(state.history.samples), ""
    following = next(left, None)
    for at_ms in times_ms:
        while following is not None and following.at_ms <= at_ms:
            numbers, following = following.numbers, next(left, None)
        found: Numbers = loads(numbers)
        yield found


def _keep(samples: list[Sample], at_ms: int, numbers: str) -> None:
    """Where nothing has changed since the sample before, that one counts on."""
    if not samples or samples[-1].numbers != numbers:
        samples.append(Sample(at_ms, numbers))


def _down(ms: int, every_ms: int) -> int:
    return ms // every_ms * every_ms


def _up(ms: int, every_ms: int) -> int:
    return -(-ms // every_ms) * every_ms


# ---------------------------------------------------------------- one sample
def numbers_of(state: State) -> Numbers:
    """How the cell is now."""
    capacity, held, counted = _of_nodes(state)
    queues = _of_queues(state, counted)
    shown = dict(sorted(sorted(queues.items(), key=_most_first)[:QUEUES_MAX]))
    return {
        "jobs": len(state.jobs),
        "waiting": state.tasks_waiting,
        "running": sum(state.tasks.values()),
        "capacity": _told(capacity),
        "held": _told(held),
        "promised": _told(_promised(state)),
        "queues": shown,
        "left_out": len(queues) - len(shown),
    }


def _most_first(queue: tuple[str, Shares]) -> tuple[int, int, str]:
    path, (held, entitled, _) = queue
    return -held, -(entitled or 0), path


def _told(amounts: Vector) -> Vector:
    return {kind: amount for kind, amount in sorted(amounts.items()) if amount}


def _of_nodes(state: State) -> tuple[Vector, Vector, Vector]:
    """What nodes have that are not lost, what is held there, and what they have as the policy counts it."""
    capacity: Vector = {}
    held: Vector = {}
    counted: Vector = {}
    for node in state.nodes.values():
        if not node.lost:
            add_amounts(capacity, node.capacity, 1)
            add_amounts(held, node.used, 1)
            add_amounts(counted, counted_capacity(state.policy, node.capacity), 1)
    return capacity, held, counted


def _promised(state: State) -> Vector:
    """What accepted reservations may have now."""
    promised: Vector = {}
    for row in state.reservations.values() if state.policy.reservations == "on" else ():
        for step in active(row.steps, state.time) if row.state == "accepted" else ():
            add_amounts(promised, step.usage, 1)
    return promised


def _of_queues(state: State, capacity: Vector) -> dict[str, Shares]:
    """By top-level queue, what it holds, what it, or those below it together, are entitled to, and what it is
    guaranteed, where there is something to tell.
    """
    # Levels of a round that is just being closed belong to what comes behind the sample.
    before = {**state.levels, **(state.history.replaced or {})}
    levels = {queue: level for queue, level in before.items() if level is not None}
    slots, tree = slots_of(state.policy), state.queues
    has_tree = tree is not None and bool(tree.children)
    held: dict[str, Vector] = {}
    for leaf, amounts in state.used.items():
        top = leaf.partition("/")[0] if has_tree else leaf
        add_amounts(held.setdefault(top, {}), {SLOTS: state.tasks.get(leaf, 0)} if slots else amounts, 1)
    entitled: dict[str, int] = {}
    for leaf, level in levels.items():
        top = leaf.partition("/")[0] if has_tree else leaf
        entitled[top] = entitled.get(top, 0) + level
    if tree is not None and tree.children:
        paths = [child.name for child in with_default(tree).children]
    else:
        paths = [*({path: True for path in (*held, *entitled) if path})]
    guaranteed = _guaranteed(state)
    found: dict[str, Shares] = {}
    for path in paths:
        share, due, own = _dominant(held.get(path, {}), capacity), entitled.get(path), guaranteed.get(path)
        if share or due is not None or own:
            found[path] = share, due, own
    return found


def _guaranteed(state: State) -> dict[str, int]:
    """By top-level queue that has a share of its own, what it is guaranteed, as fairness published it last."""
    before = state.history.replaced_guaranteed or {}
    found = {}
    for path in with_shares(state.queues, state.policy.preset):
        if path and "/" not in path:
            share = state.shares.get(path)
            found[path] = before.get(path, 0 if share is None else share.guaranteed)
    return found


def _dominant(held: Vector, capacity: Vector) -> int:
    return max(
        (amount * SHARE_UNITS // capacity[kind] for kind, amount in held.items() if capacity.get(kind)), default=0
    )
