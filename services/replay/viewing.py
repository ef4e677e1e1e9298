"""The gateway's view over a recorded log: what the cell showed at some time."""

from largesse.moments import Moment
from largesse.rounds import Hosted, read_by
from schemas import RoundClosed
from services.gateway import view
from services.replay.source import Source, Step
from services.replay.start import Start
from services.replay.verify import recorded_winners


def viewing(start: Start | None) -> Hosted:
    """The view where a log begins. Raises StartRefused."""
    return Hosted(view, view.start() if start is None else start.state(view, view.State))


def learn(hosted: Hosted, step: Step) -> None:
    """Folds a record of a log; before a closing, what it makes binding."""
    record, folds = step.accepted.record, hosted.core.FOLDS
    if isinstance(record.body, RoundClosed):
        for winner in read_by(hosted, recorded_winners(step, record)):
            folds[type(winner.body)](hosted.state, winner)
    fold = folds.get(type(record.body))
    if fold is not None:
        fold(hosted.state, record)


def view_at(source: Source, moment: Moment) -> view.State:
    """The view behind the last record up to a moment; at the log's end where that names none. Raises StartRefused, and
    what reading the source raises.
    """
    hosted = viewing(source.start)
    for step in source.steps():
        record = step.accepted.record
        if moment.is_before(record.seq, record.time):
            break
        learn(hosted, step)
    state: view.State = hosted.state
    return state
