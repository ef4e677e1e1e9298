"""What has to hold at every moment, seen from outside: by a reader of the log that nothing happens to.

`Watch.hear` is told of every message once readers can see it; `look` compares what processes believe.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from largesse.bus.port import Message
from largesse.ids import PREFIX_OF_NOTHING
from largesse.log.fencing import Accepted, LogOrder, advance
from schemas import (
    InputRefused,
    JobAdmitted,
    JobEnded,
    JobRejected,
    NodeLost,
    NodeRegistered,
    RoundClosed,
    SequencerClaimed,
    TaskFailed,
    TaskFinished,
)
from schemas.topics import LOG


@dataclass(slots=True)
class Watch:
    """The log as it counts. `wrong`: is called with what must not be; `tell`: with every record. `held`: attempts that
    hold room, and where. `refused`: topics of refused inputs by seq. `met`: how often what was met."""

    wrong: Callable[[str, str], None]
    tell: Callable[[Accepted], None]
    order: LogOrder = field(default_factory=LogOrder)
    prefixes: dict[int, str] = field(default_factory=lambda: {0: PREFIX_OF_NOTHING.hex()})
    taken: dict[str, int] = field(default_factory=dict)
    admitted: Counter[str] = field(default_factory=Counter)
    rejected: dict[str, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    held: dict[tuple[str, str, int, int], str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)

    def hear(self, message: Message) -> None:
        """A message that readers can see from now on."""
        if message.topic != LOG:
            return
        accepted = advance(self.order, message.offset, message.value)
        if accepted is None:
            old = f'"token":"{self.order.token}"'.encode() not in message.value[:200]
            self.met["fencing: void, of an older claim" if old else "fencing: void, by its seq"] += 1
            return
        self.tell(accepted)
        if isinstance(accepted.record.body, SequencerClaimed):
            self.met["fencing: claims"] += 1
            return
        self.prefixes[self.order.seq] = self.order.prefix
        self._note_source(accepted)
        self._note_job(accepted.record.body)
        self._note_attempts(accepted.record.body)

    def _note_source(self, accepted: Accepted) -> None:
        header = accepted.header
        if not header.topic:
            return
        last = self.taken.get(header.topic, -1)
        if header.offset <= last:
            self.wrong("an input is taken twice", f"{accepted.record.id}: {header.topic} {header.offset} after {last}")
        self.taken[header.topic] = header.offset
        if isinstance(accepted.record.body, InputRefused | JobRejected):
            self.refused[accepted.record.seq] = header.topic

    def _note_job(self, body: object) -> None:
        if isinstance(body, JobAdmitted):
            self.admitted[body.spec.job] += 1
            if self.admitted[body.spec.job] > 1:
                self.wrong("a job is admitted twice", body.spec.job)
        elif isinstance(body, JobRejected):
            self.rejected[body.spec.job] = body.reason
        elif isinstance(body, JobEnded):
            for end in body.jobs:
                if end.job in self.ended:
                    self.wrong("a job ends twice", end.job)
                self.ended[end.job] = end.outcome

    def _note_attempts(self, body: object) -> None:
        match body:
            case RoundClosed(grants=grants):
                for grant in grants:
                    self.held |= dict.fromkeys(_names(grant), grant.node)
            case TaskFinished(items=items) | TaskFailed(items=items):
                self._end(items)
            case NodeLost(lost=lost):
                self._end(lost)
            case NodeRegistered(lost=lost, attempts=attempts):
                self._end(lost)
                self._end([each for each in attempts if each.state != "running"])

    def _end(self, items: Iterable[Any]) -> None:
        for item in items:
            for name in _names(item):
                self.held.pop(name, None)

    def look(self, orders: Iterable[tuple[str, Any]]) -> None:
        """Every process that has read the log up to some seq has read the same."""
        for name, order in orders:
            known = self.prefixes.get(order.seq)
            if known != order.prefix:
                what = "is not there" if known is None else "is another one"
                self.wrong("two orders of one log", f"{name} at seq {order.seq}: its prefix {what}")


def _names(item: Any) -> list[tuple[str, str, int, int]]:
    return [(item.job, item.stage, index, item.attempt) for index in range(item.first, item.first + item.count)]
