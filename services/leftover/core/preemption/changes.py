"""When it counts no more which queues have taken capacity from which."""

from services.leftover.core.state import State


def note_change(state: State) -> None:
    """Weights, submissions or capacity change: who has lost capacity to whom counts no more, but for tasks that run in
    its room.
    """
    if state.takings:
        state.takings = {}
