"""Turns inputs that were read into records, and decides which inputs are not parsed at all.

An input that makes the sequencer crash does so at every start, before it reaches an operator's request to skip it,
which is further on in the topics. So a new leader first scans `config` to its end for such skip requests only. A
message found there is parsed only if it is short.
"""

from dataclasses import replace

from largesse import failpoints
from largesse.bus.port import Bus, BusError, Message
from largesse.ids import content_hash
from largesse.log.inputs import Input, InputStopped, parse
from schemas import InputRefused
from schemas.edge.read import ConfigPatch
from schemas.edge.strict_json import loads
from schemas.registry import LogBody
from services.admission.core import NAME
from services.admission.core.closings import Closings
from services.admission.core.judge import judge
from services.admission.core.skips import judge_skip, place_of, refusal_of
from services.admission.core.state import State

TOPIC = "config"

SKIP_BYTES_MAX = 8_192
"""A longer message is not looked at before its turn. A wish with the longest reason there may be is shorter."""

FORM = "skip_input"
FIELDS_MAX = 3
_MARK = b'"skip_input"'


def is_skipped(state: State, topic: str, offset: int) -> bool:
    """Whether an operator has this input skipped: then nothing of it may be parsed."""
    return place_of(topic, offset) in state.skips


async def become(
    bus: Bus, state: State, closings: Closings, taken: dict[str, int], item: Input, time: int
) -> LogBody | None:
    """The body of the record that an input becomes at log time `time` (ms); None if it changes nothing.

    `closings`: those that the log has. `taken`: by topic, the offset of the last input before it. Raises InputStopped,
    BusError.
    """
    size = len(item.value)
    # An input of the same batch may have had it skipped: then it has been parsed.
    skip = state.skips.get(place_of(item.topic, item.offset))
    if skip is not None:
        return refusal_of(skip, item.topic, item.offset, size, content_hash(item.value), item.author)
    if item.fault is not None:
        fault, digest = item.fault, content_hash(item.value)
        return InputRefused(item.topic, fault.reason, fault.field, size, digest, item.author)
    try:
        failpoints.hit(NAME, "before_judge")
        if isinstance(item.body, ConfigPatch) and item.body.skip is not None:
            asked = item.body.skip
            end = (await bus.bounds(asked.topic, item.partition))[1]
            body: LogBody | None = judge_skip(state, asked, item.partition, taken[asked.topic], end, item.author)
        elif isinstance(item.body, ConfigPatch) and item.body.checkpoint is not None:
            body = closings.judge(item.body.checkpoint, taken)
        else:
            body = judge(state, item.body, item.author, time)
    except BusError:
        raise
    except Exception as error:
        raise InputStopped("judging", item.topic, item.partition, item.offset) from error
    failpoints.hit(NAME, "after_judge")
    if isinstance(body, InputRefused):
        return replace(body, size=size, hash=content_hash(item.value))
    return body


async def wishes_ahead(bus: Bus, partition: int, start: int) -> list[Input]:
    """The inputs of `config` from an offset on that have others skipped, in order. Raises PositionGap, BusError."""
    wishes = []
    end = (await bus.bounds(TOPIC, partition))[1]
    while start < end:
        fetched = await bus.fetch(TOPIC, partition, start)
        if fetched.position == start:
            break  # A transaction is open there.
        start = fetched.position
        wishes += [wish for message in fetched if (wish := _wish_in(message)) is not None]
    return wishes


def _wish_in(message: Message) -> Input | None:
    if len(message.value) > SKIP_BYTES_MAX or _MARK not in message.value or not _has_shape(message.value):
        return None
    try:
        found = parse(message)
    except InputStopped:
        return None
    return found if isinstance(found.body, ConfigPatch) and found.body.skip is not None else None


def _has_shape(value: bytes) -> bool:
    """Whether a short message is an object with one field, which is a small object of plain values: no reader of such a
    message can come to harm.
    """
    try:
        document = loads(value)
    except Exception:
        return False  # What is wrong with it is reported in its turn, unless it is skipped.
    if not isinstance(document, dict) or len(document) != 1:
        return False
    asked = document.get(FORM)
    if not isinstance(asked, dict) or len(asked) > FIELDS_MAX:
        return False
    return not any(isinstance(each, list | dict) for each in asked.values())
