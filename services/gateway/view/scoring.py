"""Scores predictions of starts: of jobs that their first round leaves waiting, what is said then is kept, and compared
with what comes.

To predict means to look through nodes and tasks, so it is done as often as records that are folded earn it, and for
other jobs not: which ones follows from the log alone.
"""

from schemas import Record, RoundClosed
from schemas.reasons import Reason
from services.gateway.view.jobs import LiveJob, waiting_of
from services.gateway.view.predictions import SCORED_MAX, Predicted, Score
from services.gateway.view.starts import Starts
from services.gateway.view.state import State

EARNED_BY_RECORD = 5
"""Steps; each is a look at a node, at a task that runs or at a job."""
EARNED_MAX = 20_000
"""A prediction that takes more is made on credit; none is made until that is earned."""


def note_new(state: State, name: str) -> None:
    """A job was admitted."""
    state.predictions.said.pop(name, None)
    state.predictions.new[name] = True


def note_other(state: State, name: str) -> None:
    """A job has ended, or a user has changed it: what was said of it was said of another one."""
    state.predictions.new.pop(name, None)
    state.predictions.said.pop(name, None)


def note_start(state: State, job: LiveJob, time_ms: int) -> None:
    """The first task of a job has started."""
    predictions = state.predictions
    predictions.new.pop(job.spec.job, None)
    said = predictions.said.pop(job.spec.job, None)
    if said is None:
        return
    score = Score(
        job.spec.queue,
        said.likely_ms - said.at_ms,
        said.plain_ms,
        time_ms - said.at_ms,
        said.earliest_ms <= time_ms <= said.latest_ms,
    )
    predictions.scores = [*predictions.scores, score][-SCORED_MAX:]


def predict(state: State, record: Record) -> None:
    """A record has been folded. Once a round is over, says of jobs that it considered first when they will start."""
    predictions = state.predictions
    predictions.earned = min(EARNED_MAX, predictions.earned + EARNED_BY_RECORD)
    if not predictions.new or not isinstance(record.body, RoundClosed):
        return
    steps = len(state.nodes) + len(state.holds) + len(state.jobs)
    starts: Starts | None = None
    for name in [name for name in predictions.new if state.jobs[name].admitted <= state.opened]:
        del predictions.new[name]
        job = state.jobs[name]
        if predictions.earned < min(steps, EARNED_MAX) or any(job.starting) or any(job.running) or job.hold is not None:
            continue
        starts = starts or Starts(state)
        predictions.earned -= steps
        _keep(state, job, starts)


def _keep(state: State, job: LiveJob, starts: Starts) -> None:
    at = next((at for at, asked in enumerate(job.asked) if min(asked, waiting_of(job, at))), None)
    if at is None:
        return
    reason = reason_of(state, job)
    plain, start = starts.plain(job, at, reason), starts.of(job, at, reason)
    if plain is None or plain.likely_ms is None or start is None or start.likely_ms is None or start.latest_ms is None:
        return
    plain_ms = plain.likely_ms - state.time
    said = Predicted(state.time, start.earliest_ms, start.likely_ms, start.latest_ms, plain_ms)
    state.predictions.said[job.spec.job] = said


def reason_of(state: State, job: LiveJob) -> Reason | str:
    """Why a job waits, as its account has it."""
    account = job.account
    said = state.clocks[account.clock].reason if account.clock else None
    return said if said not in (None, "next_round") else account.reason or "next_round"
