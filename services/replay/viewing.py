"""The gateway's view over a recorded log: what the cell showed at some time."""

from largesse.moments import Moment
from largesse.rounds import Hosted, read_by
from schemas import RoundClosed
from services.gateway import view
from services.replay.source import Source
from services.replay.start import Start
from services.replay.verify import recorded_winners


def viewing(start: Start | None) -> Hosted:
    """The view where a log begins. Raises StartRefused."""
    return Hosted(view, view.start() if start is None else start.state(view, view.State))


def view_at(source: Source, moment: Moment) -> view.State:
    """The view behind the last record up to a moment; at the log's end where that names none. Raises StartRefused, and
    what reading the source raises.
    """
    hosted = viewing(source.start)
    for step in source.steps():
        record = step.accepted.record
        if moment.is_before(record.seq, record.time):
            break
        if isinstance(record.body, RoundClosed):
            for winner in read_by(hosted, recorded_winners(step, record)):
                view.fold(hosted.state, winner)
        if type(record.body) in view.FOLDS:
            view.fold(hosted.state, record)
    state: view.State = hosted.state
    return state
