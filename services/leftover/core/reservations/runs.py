"""What runs for reservations, and what runs as revocable on room that is promised to them, as attempts come and go."""

from schemas import Grant, Revocation
from services.leftover.core.job import Job
from services.leftover.core.state import Lent, State, TakenBack


def note_runs(state: State, grant: Grant) -> None:
    """Tasks of a job with a reservation, or revocable ones, begin to run."""
    reserving = state.reserving.get(grant.job)
    for index in range(grant.first, grant.first + grant.count):
        run = f"{grant.stage}/{index}"
        if reserving is not None:
            reserving.runs[run] = grant.node
        if grant.revocable:
            state.lent.setdefault(grant.node, {})[f"{grant.job}/{run}"] = Lent(grant.attempt)


def forget_runs(state: State, node: str, job: str, stage: str, first: int, count: int) -> None:
    """Tasks run on a node no longer."""
    reserving = state.reserving.get(job)
    lent = state.lent.get(node, {})
    for index in range(first, first + count):
        run = f"{stage}/{index}"
        if reserving is not None and reserving.runs.get(run) == node:
            del reserving.runs[run]
        lent.pop(f"{job}/{run}", None)
    if node in state.lent and not lent:
        del state.lent[node]


def take_back(state: State, revoked: list[Revocation], time: int) -> None:
    """Attempts are taken back. Those that have ended meanwhile are not there any more."""
    counted: dict[str, bool] = {}
    for item in revoked:
        for index in range(item.first, item.first + item.count):
            key = f"{item.job}/{item.stage}/{index}"
            lent = lent_of(state, item.node, key)
            if lent is None and item.claim is not None:
                held = state.held.get(item.node, {}).get(key)
                if held is not None and held.attempt == item.attempt:
                    lent = state.lent.setdefault(item.node, {})[key] = Lent(item.attempt)
            if lent is None or lent.attempt != item.attempt:
                continue
            lent.taken = True
            if item.reservation and item.job in state.jobs:
                stage = f"{item.job}/{item.stage}"
                lost = state.taken_back.setdefault(stage, TakenBack())
                lost.times += stage not in counted
                lost.longest_ms = max(lost.longest_ms, time - state.held[item.node][key].start_ms)
                counted[stage] = True


def lent_of(state: State, node: str, key: str) -> Lent | None:
    """What is kept of an attempt that runs on a node if it is revocable."""
    on_node = state.lent.get(node) if state.lent else None
    return None if on_node is None else on_node.get(key)


def forget_promised(state: State, name: str, job: Job) -> None:
    """A job is over."""
    state.revocable.pop(name, None)
    if state.taken_back or state.promised:
        for stage in job.graph.stages:
            state.taken_back.pop(f"{name}/{stage.stage}", None)
            state.promised.pop(f"{name}/{stage.stage}", None)
