"""The sequencer's reading of the input topics: each message once, in its partition's order, as a body or a fault."""

from collections.abc import Callable
from dataclasses import dataclass

from largesse.bus.port import Bus, Message
from schemas import JobSpec, Position
from schemas.edge.base import author_of
from schemas.edge.read import Malformed, read_input
from schemas.edge.strict_json import loads
from schemas.topics import INPUTS

READ_BYTES_MAX = 1 << 20
"""Bytes of one topic's messages that are read at once. Parsed, a message takes some twenty times its bytes."""


class InputStopped(Exception):
    """Reading or judging an input raised: names its place. It is not left out: that is for an operator to decide."""

    def __init__(self, doing: str, topic: str, partition: int, offset: int) -> None:
        super().__init__(f"stopped {doing} the input in {topic}, partition {partition}, offset {offset}")
        self.topic = topic
        self.partition = partition
        self.offset = offset


@dataclass(slots=True)
class Input:
    """One input message, read strictly: `body`, or the `fault` for which it is refused; neither where an operator had
    it skipped.
    """

    topic: str
    partition: int
    offset: int
    author: str
    value: bytes
    body: object = None
    fault: Malformed | None = None


class InputReader:
    """Follows a cell's partition of every input topic. `taken`: "topic/partition" -> the last offset in the log."""

    def __init__(self, bus: Bus, partition: int, taken: dict[str, int]) -> None:
        self._bus = bus
        self._partition = partition
        self._next = {topic: taken.get(f"{topic}/{partition}", -1) + 1 for topic in INPUTS}

    async def read(self, most: int, is_skipped: Callable[[str, int], bool]) -> list[Input]:
        """Up to `most` messages of each topic, of READ_BYTES_MAX together, but one at least; the topics in the order of
        INPUTS. `is_skipped`: whether the message of a topic at an offset is not to be parsed. Raises PositionGap,
        BusError, InputStopped.
        """
        found = []
        for topic in INPUTS:
            fetched = await self._bus.fetch(topic, self._partition, self._next[topic], most=most)
            self._next[topic], left = fetched.position, READ_BYTES_MAX
            for message in fetched:
                left -= len(message.value)
                if left < 0 and message is not fetched[0]:
                    self._next[topic] = message.offset
                    break
                found.append(unread(message) if is_skipped(topic, message.offset) else parse(message))
        return found

    @property
    def waiting_for(self) -> dict[tuple[str, int], int]:
        """What to hand to `wait_any`."""
        return {(topic, self._partition): offset for topic, offset in self._next.items()}

    def moved(self, said: dict[str, int]) -> list[Position]:
        """The last offset read, or passed where no message has it, of every topic in which that is beyond what was
        `said`: "topic/partition" -> offset."""
        last = [Position(topic, self._partition, offset - 1) for topic, offset in self._next.items()]
        return [at for at in last if at.offset > said.get(f"{at.topic}/{at.partition}", -1)]

    async def is_drained(self, *topics: str) -> bool:
        """Whether everything that lies in these topics has been read. Raises BusError."""
        ends = [(await self._bus.bounds(topic, self._partition))[1] for topic in topics]
        return all(self._next[topic] >= end for topic, end in zip(topics, ends, strict=True))


def unread(message: Message) -> Input:
    """A message of an input topic, of which nothing is read but who sent it."""
    author = author_of(message.headers.get("author", ""))
    return Input(message.topic, message.partition, message.offset, author, message.value)


def parse(message: Message) -> Input:
    """What a message of an input topic says. A job that its submitter did not name is named after its place.

    Raises InputStopped.
    """
    found = unread(message)
    try:
        found.body = read_input(message.topic, loads(message.value), found.author)
    except Malformed as fault:
        # As it is it would keep what it was raised over: a thousand times the message, while a batch is judged.
        found.fault = Malformed(fault.field, fault.reason)
        return found
    except Exception as error:
        raise InputStopped("reading", message.topic, message.partition, message.offset) from error
    if isinstance(found.body, JobSpec) and not found.body.job:
        found.body.job = f"{message.topic}-{message.partition}-{message.offset}"
    return found
