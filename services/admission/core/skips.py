"""Inputs that the sequencer skips because an operator asked for it: which may be skipped, what is remembered of them,
and what they become.
"""

from schemas import InputRefused, InputSkipped, Record
from schemas.edge.config import SkipRequest
from services.admission.core.state import SKIPS_MAX, Skip, State


def place_of(topic: str, offset: int) -> str:
    """Names a message of the cell's partition of an input topic."""
    return f"{topic}/{offset}"


def judge_skip(
    state: State, asked: SkipRequest, partition: int, taken: int, end: int, author: str
) -> InputSkipped | InputRefused | None:
    """The record that an operator's wish becomes; None where it is granted already.

    `taken`: the last offset of the topic that became a record, or changed nothing; `end`: the offset that the topic's
    next message will get.
    """
    topic, offset = asked.topic, asked.offset
    if place_of(topic, offset) in state.skips:
        return None
    if offset <= taken:
        why = f"{topic} has been read up to offset {taken}: what {offset} says is in the log already"
    elif offset >= end:
        why = f"{topic} ends before offset {end}: there is nothing at {offset} yet"
    elif len(state.skips) >= SKIPS_MAX and _passed(state) is None:
        why = f"{SKIPS_MAX} skipped inputs wait for their turn; wait until the sequencer comes to some of them"
    else:
        return InputSkipped(topic, partition, offset, asked.reason, author)
    return InputRefused("config", why, "skip_input.offset", 0, "", author)


def refusal_of(skip: Skip, topic: str, offset: int, size: int, digest: str, author: str) -> InputRefused:
    """What becomes of a skipped input when its turn has come."""
    detail = f"skipped by {skip.author}: {skip.reason}" if skip.reason else f"skipped by {skip.author}"
    return InputRefused(topic, detail, "", size, digest, author, offset)


def fold_skipped(state: State, record: Record) -> None:
    """An operator had an input skipped. Of those that were passed, the oldest is forgotten where there are too many."""
    body: InputSkipped = record.body
    oldest = _passed(state) if len(state.skips) >= SKIPS_MAX else None
    if oldest is not None:
        del state.skips[oldest]
    state.skips[place_of(body.topic, body.offset)] = Skip(body.author, body.reason)


def fold_refused(state: State, record: Record) -> None:
    """A skipped input's turn has come."""
    body: InputRefused = record.body
    if body.offset is not None and (skip := state.skips.get(place_of(body.topic, body.offset))) is not None:
        skip.passed = True


def _passed(state: State) -> str | None:
    """The place of the oldest skipped input whose turn has gone."""
    for place, skip in state.skips.items():
        if skip.passed:
            return place
    return None
