"""The gateway's view over a recorded log: what the cell showed at some time."""

from largesse.rounds import Hosted
from services.gateway import view
from services.replay.start import Start


def viewing(start: Start | None) -> Hosted:
    """The view where a log begins. Raises StartRefused."""
    return Hosted(view, view.start() if start is None else start.state(view, view.State))
