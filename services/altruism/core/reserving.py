"""Jobs of accepted reservations. What they have is their promise, whatever others do, so they give nothing away: they
are not planned, ask for all that could start as required, and keep no account. While a reservation is not accepted, or
once it is gone, its jobs are jobs like any other.
"""

from largesse.lifecycle.promises import is_accepted
from schemas import JobSpec
from services.altruism.core.ledger import entry_of
from services.altruism.core.state import Job, State


def admit_reserved(state: State, spec: JobSpec) -> None:
    """Notes which reservation a job that comes names, if any."""
    if spec.reservation is not None:
        state.reserving[spec.job] = spec.reservation
        if is_accepted(state.promises, spec.reservation):
            state.outside[spec.job] = True


def changed_sides(state: State) -> list[str]:
    """Jobs that stand outside the tree since what is accepted has changed, or no longer do. Notes that."""
    found: list[str] = []
    for name, reservation in state.reserving.items():
        outside = is_accepted(state.promises, reservation)
        if outside != (name in state.outside):
            found.append(name)
            if outside:
                state.outside[name] = True
            else:
                del state.outside[name]
    return found


def close_account(state: State, name: str, job: Job, time: int) -> None:
    """The job is planned no longer: nothing of its plan counts from now on, and its account is over."""
    if job.account is not None:
        state.settled.append(entry_of(name, job, time, "reserved"))
    job.plan = job.account = None
