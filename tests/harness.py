"""A core's story: `given(core, *facts)`, `.then(*facts)`, `.round(at=...)`, `.restarted()`.

Records are made, encoded and decoded as on a bus. Every round is decided twice, the second time without caches, and has
to give the same bytes and to leave what a snapshot shows as it was.
"""

from collections.abc import Sequence
from typing import Any

from largesse.core import RULES, Core, OpenRound
from largesse.ids import PREFIX_OF_NOTHING, chain, content_hash, log_id, opening_id
from largesse.log.codec import decode, encode, record_of
from largesse.log.snapshots import dump, load
from largesse.log.wanted import Wanted, answer
from schemas import Asks, DecisionHash, Grant, Grants, Record, RoundAbandoned, RoundClosed, RoundOpened, Shares
from schemas.topics import SHARDED
from tests.builders import Fact

CELL = "default"

_NOTHING_SAID = {"shares": lambda shard, of: Shares([]), "asks": lambda shard, of: Asks(shard, of, [])}


def given(core: Core, *facts: Fact, shard: int = 0, of: int = 1) -> "Story":
    """A story that begins with these facts."""
    return Story(core, shard, of).then(*facts)


class Story:
    """One core's state and the end of its log."""

    def __init__(self, core: Core, shard: int = 0, of: int = 1) -> None:
        self.core = core
        self.shard, self.of = shard, of
        self.state = core.start(shard, of)
        self.time = self.seq = self.rounds = 0
        self.prefix = PREFIX_OF_NOTHING
        self.opening: Record | None = None
        self.winners: dict[str, list[tuple[Wanted, Record, bytes]]] = {}

    def then(self, *facts: Fact) -> "Story":
        """These facts happen next, also while a round is open."""
        for fact in facts:
            self._put(fact.body, self.time if fact.at is None else fact.at)
        return self

    def round(self, at: int | None = None, *, shards: int | None = None, **upstream: list[Any]) -> Sequence[Any]:
        """Opens a round and returns what the core answers; what upstream said to it may be given by topic.

        A round that was left open is closed first, and what it granted binds.
        """
        if self.opening is not None:
            self.close()
        self.of = self.of if shards is None else shards
        body = RoundOpened(RULES, self.prefix.hex(), self.of)
        self.opening = opening = self._put(body, self.time if at is None else at)
        self.winners = {topic: self._said(topic, upstream) for topic in self.core.UPSTREAM}
        known = {topic: [record for _, record, _ in said] for topic, said in self.winners.items()}
        before = dump(self.state)
        bodies = self.core.decide(self.state, OpenRound(opening, known))
        assert dump(self.state) == before, f"{self.core.NAME}: deciding changed its state"
        bare = load(type(self.state), before)
        again = self.core.decide(bare, OpenRound(opening, known))
        assert self._bytes(again) == self._bytes(bodies), f"{self.core.NAME}: the answer depends on a cache"
        self.winners[self.core.TOPIC] = [
            self._winner(Wanted(self.core.TOPIC, self.shard, self._width), b) for b in bodies
        ]
        return bodies

    def close(self, *grants: Grant, wake_ms: int | None = None) -> "Story":
        """Closes the open round with these grants; without any, with those that the core gave itself."""
        assert self.opening is not None, "no round is open"
        for topic in self.core.READS:
            for _, record, _ in self.winners[topic]:
                self._fold(record)
        own = [body.grants for _, record, _ in self.winners[self.core.TOPIC] if isinstance(body := record.body, Grants)]
        bound = list(grants) or [each for given_by in own for each in given_by]
        said = list(self.winners.values())
        hashes = [DecisionHash(*wanted, content_hash(content)) for each in said for wanted, _, content in each]
        opening, self.opening = self.opening, None
        self._put(RoundClosed(bound, [], [], wake_ms, hashes), max(self.time, opening.time))
        return self

    def abandon(self) -> "Story":
        """The open round comes to nothing."""
        assert self.opening is not None, "no round is open"
        self.opening = None
        self._put(RoundAbandoned("operator"), self.time)
        return self

    def restarted(self) -> "Story":
        """The same story with a state that went through a snapshot."""
        self.state = load(type(self.state), dump(self.state))
        return self

    @property
    def snapshot(self) -> bytes:
        """What a snapshot of the state holds now."""
        return dump(self.state)

    @property
    def _width(self) -> int:
        return self.of if self.core.TOPIC in SHARDED else 1

    def _said(self, topic: str, upstream: dict[str, list[Any]]) -> list[tuple[Wanted, Record, bytes]]:
        width = self.of if topic in SHARDED else 1
        bodies = upstream.get(topic) or [_NOTHING_SAID[topic](shard, width) for shard in range(width)]
        return [self._winner(Wanted(topic, shard, width), body) for shard, body in enumerate(bodies)]

    def _winner(self, wanted: Wanted, body: Any) -> tuple[Wanted, Record, bytes]:
        assert self.opening is not None
        _, content = answer(self.opening, wanted, body)
        return wanted, decode(content), content

    def _bytes(self, bodies: Sequence[Any]) -> list[bytes]:
        assert self.opening is not None
        return [answer(self.opening, Wanted(self.core.TOPIC, self.shard, self._width), body)[1] for body in bodies]

    def _put(self, body: Any, at: int) -> Record:
        assert at >= self.time, f"a story goes forward: {at} is before {self.time}"
        self.seq, self.time = self.seq + 1, at
        if isinstance(body, RoundOpened):
            self.rounds += 1
            id_ = opening_id(CELL, self.seq, self.rounds, body.prefix)
        else:
            id_ = log_id(CELL, self.seq)
        made = record_of(body, cell=CELL, seq=self.seq, round_number=self.rounds, time=at, id_=id_, cause="")
        content = encode(made)
        self.prefix = chain(self.prefix, content)
        record = decode(content)
        self._fold(record)
        return record

    def _fold(self, record: Record) -> None:
        learn = self.core.FOLDS.get(type(record.body))
        if learn is not None:
            learn(self.state, record)
