"""Capacity that is taken back for queues below their guarantee, in the gateway's view."""

from schemas import Record, Revocation
from services.gateway.view.state import State, TakenRow, TakingRow, note

TAKINGS_KEPT = 100
"""Of the last times that a queue took something from another."""


def queue_name(path: str) -> str:
    """A queue in a sentence."""
    return f"queue {path}" if path else "the whole cell"


def note_taken(state: State, record: Record, item: Revocation) -> None:
    """Attempts are taken back for a guarantee."""
    claim, job = item.claim, state.jobs.get(item.job)
    if claim is None or job is None:
        return
    loser = job.spec.queue
    of_job = state.taken.setdefault(item.job, {})
    for index in range(item.first, item.first + item.count):
        of_job[f"{item.stage}/{index}"] = TakenRow(item.attempt, claim.queue, claim.at, record.seq)
    state.taken_tasks[loser] = state.taken_tasks.get(loser, 0) + item.count
    last = state.takings[-1] if state.takings else None
    if last is not None and (last.seq, last.claimant, last.loser) == (record.seq, claim.queue, loser):
        last.tasks += item.count
    else:
        row = TakingRow(record.seq, record.time, claim.queue, claim.at, loser, item.count)
        state.takings = [*state.takings, row][-TAKINGS_KEPT:]
    note(state, "jobs", item.job)


def end_taken(state: State, job: str, stage: str, index: int, attempt: int) -> TakenRow | None:
    """An attempt has ended. What is known of it, if it was taken back for a guarantee."""
    of_job = state.taken.get(job)
    row = of_job.pop(f"{stage}/{index}", None) if of_job is not None else None
    if of_job is not None and not of_job:
        del state.taken[job]
    return row if row is not None and row.attempt == attempt else None


def taken_for_text(row: TakenRow | None, detail: str) -> str:
    """What is told of an attempt that was revoked, with the queue that it was for, if there is one."""
    if row is None:
        return detail
    text = f"{claim_text(row.claimant, row.at)} (record {row.seq})"
    return f"{text}: {detail}" if detail else text


def claim_text(claimant: str, at: str) -> str:
    """Whose claim it was, and at which level of the tree."""
    where = "of the cell" if not at else f"of {queue_name(at)}"
    return f"its room was taken back for {queue_name(claimant)}, which held less than it is guaranteed {where}"


def ending_for(state: State, path: str) -> int:
    """How many tasks that still run are being taken back for a queue."""
    return sum([row.claimant == path for of_job in state.taken.values() for row in of_job.values()])
