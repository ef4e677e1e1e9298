"""Running tasks that may be taken back for a reservation, in the gateway's view."""

from schemas import Grant, Revocation
from services.gateway.view.state import LentRow, State, note


def begin_lent(state: State, grant: Grant) -> None:
    """Tasks start that may be taken back for a reservation."""
    if grant.revocable_by and grant.revocable_from_ms is not None and grant.revocable_until_ms is not None:
        of_job = state.lent.setdefault(grant.job, {})
        for index in range(grant.first, grant.first + grant.count):
            of_job[f"{grant.stage}/{index}"] = LentRow(
                grant.attempt, grant.revocable_by, grant.revocable_from_ms, grant.revocable_until_ms
            )


def take_back(state: State, item: Revocation) -> None:
    """Attempts are taken back for a reservation."""
    of_job = state.lent.get(item.job, {})
    for index in range(item.first, item.first + item.count):
        lent = of_job.get(f"{item.stage}/{index}")
        if lent is not None and lent.attempt == item.attempt:
            lent.taken_for = item.reservation
            note(state, "jobs", item.job)


def end_lent(state: State, job: str, stage: str, index: int) -> LentRow | None:
    """An attempt has ended. What was known of it, if it could be taken back."""
    of_job = state.lent.get(job)
    if of_job is None:
        return None
    lent = of_job.pop(f"{stage}/{index}", None)
    if not of_job:
        del state.lent[job]
    return lent


def taken_text(lent: LentRow | None, detail: str) -> str:
    """What is told of an attempt that was revoked, with the reservation that it was for, if there is one."""
    if lent is None or not lent.taken_for:
        return detail
    text = f"its room was promised to {lent.taken_for}"
    return f"{text}: {detail}" if detail else text
