"""What an attempt printed, read as a whole from its node's data folder."""

from largesse.task_output import Wanted, rendered
from services.agent.task_output import read_piece


def read_output(data, job, stage, index, attempt=None, stream="stdout", admitted=None):
    """All of it; a line in brackets stands where the middle was not kept. None: nothing is kept."""
    text, at = b"", 0
    while True:
        piece = read_piece(data, Wanted(job, stage, index, stream, attempt, at, admitted))
        if piece is None:
            return None
        text += rendered(piece, at)
        if not piece.data:
            return text
        at = piece.start + len(piece.data)
