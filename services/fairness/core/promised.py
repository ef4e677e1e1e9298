"""Capacity that is promised to reservations is not divided, and jobs of accepted reservations demand nothing of what
is (docs/concepts/dress.md): they have their promise, and what nobody else can use.
"""

from largesse.lifecycle.promises import is_accepted, switch
from schemas import JobSpec
from services.fairness.core.demand import divide_capacity, recount
from services.fairness.core.stale import all_changed
from services.fairness.core.state import Reserving, State


def divide_anew(state: State) -> None:
    """Nodes, or promises, have changed."""
    divide_capacity(state)
    all_changed(state)


def queue_of(state: State, spec: JobSpec) -> str:
    """The queue that a job which is admitted asks in; "" for one whose reservation is accepted."""
    if spec.reservation is None:
        return spec.queue
    state.reserving[spec.job] = Reserving(spec.reservation, spec.queue)
    return "" if is_accepted(state.promises, spec.reservation) else spec.queue


def queues_named(state: State) -> list[tuple[str, str]]:
    """Live jobs, each with the queue that it names, in which it may not ask."""
    reserving = state.reserving
    return [(name, reserving[name].queue if name in reserving else job.queue) for name, job in state.jobs.items()]


def switch_promises(state: State) -> None:
    """Another policy is in force."""
    if switch(state.promises, state.policy):
        place_reserved(state)


def place_reserved(state: State) -> None:
    """Other reservations are accepted: their jobs leave the tree, and those of the ones that are gone come back. Costs
    the nodes and live jobs where there is any.
    """
    moved = False
    for name, reserving in state.reserving.items():
        job = state.jobs[name]
        queue = "" if is_accepted(state.promises, reserving.reservation) else reserving.queue
        if job.queue == queue:
            continue
        job.queue, moved = queue, True
        for stage in job.graph.stages:
            if (held := state.held.get(f"{name}/{stage.stage}")) is not None:
                held.leaf = queue
    if moved:
        recount(state)
        divide_anew(state)
