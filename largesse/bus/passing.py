"""Topics that nobody keeps, on a local bus: the last messages of each partition, in memory and nowhere else.

They are shown at once, durable or not. What is older than the last KEPT messages is gone, and so is everything once
the bus is closed: offsets begin at 0 again when it is opened.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from largesse.bus.port import Message, Outgoing
from schemas.topics import TOPICS

PASSING = frozenset(topic.name for topic in TOPICS if topic.kind == "beat")
KEPT = 4_096


@dataclass(slots=True)
class PassingPartition:
    """`end`: the next offset."""

    end: int = 0
    messages: deque[Message] = field(default_factory=lambda: deque(maxlen=KEPT))

    def bounds(self) -> tuple[int, int]:
        """The first offset that is left, and the next one."""
        return self.end - len(self.messages), self.end

    def add(self, sent: Outgoing) -> int:
        """Takes the next message; returns its offset."""
        self.messages.append(Message(sent.topic, sent.partition, self.end, sent.value, dict(sent.headers)))
        self.end += 1
        return self.end - 1

    def read(self, offset: int, most: int) -> list[Message]:
        """Up to `most` messages from `offset`, which is within the bounds."""
        start = offset - self.bounds()[0]
        return list(islice(self.messages, start, start + most))
