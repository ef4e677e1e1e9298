"""The beats topic: signs of life, which say nothing else. None becomes a record, and none is kept for long."""

from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field

from schemas.edge.base import Epoch, Input, Name, Whole, check_one_form
from schemas.edge.validated import validated

TOKEN_MAX = 64


class NodeBeatInput(Input):
    """An agent lives, and offers what the log has of its node."""

    node: Name
    epoch: Epoch


class SequencerBeatInput(Input):
    """The sequencer whose claim has this token leads, and has nothing to write: its log time, and the last seq."""

    token: Annotated[str, Field(min_length=1, max_length=TOKEN_MAX)]
    time: Whole
    seq: Whole


class BeatInput(Input):
    """A message of the beats topic: exactly one of its fields."""

    node: NodeBeatInput | None = None
    sequencer: SequencerBeatInput | None = None


@dataclass(slots=True)
class NodeBeat:
    """The agent of this epoch lives."""

    node: str
    epoch: str


@dataclass(slots=True)
class SequencerBeat:
    """The writer with this token lives; it was at this log time, behind this seq."""

    token: str
    time: int
    seq: int


Beat = NodeBeat | SequencerBeat


def document_of(beat: Beat) -> dict[str, object]:
    """What `read_beat` reads again."""
    return {"node" if isinstance(beat, NodeBeat) else "sequencer": asdict(beat)}


def read_beat(document: object) -> Beat:
    """A message of the beats topic. Raises Malformed."""
    message = validated(BeatInput, document)
    check_one_form(message)
    if message.node is not None:
        return NodeBeat(message.node.node, message.node.epoch)
    assert message.sequencer is not None
    said = message.sequencer
    return SequencerBeat(said.token, said.time, said.seq)
