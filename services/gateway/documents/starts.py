"""When something is expected to start, and how wrong the last such predictions were."""

from services.gateway.documents import Document
from services.gateway.view.predictions import Start, accuracy_of
from services.gateway.view.state import State


def start_document(state: State, start: Start) -> Document:
    """As the API shows it."""
    return dict(start._asdict()) | {"accuracy": accuracy_document(state)}


def accuracy_document(state: State) -> Document | None:
    """Of the last predictions; None: none has been scored."""
    found = accuracy_of(state.predictions.scores)
    return None if found is None else dict(found._asdict())
