"""Every document of the decision topics beside what is decided again for the same opening.

All honest answers to one opening are the same bytes, so each document is compared: the one that won, those that came
second, those that came too late. Which opening it answers, its name says (ids.decision_id).
"""

import json

from largesse.ids import content_hash
from largesse.rounds import Answer, Answers
from schemas import Record
from services.replay.differences import Difference, Diverged, first_difference, shown

ROUNDS_KEPT = 100_000
"""Rounds for which hashes of what was decided are remembered, some 300 B each: a document that comes after the end of
its round is compared by its hash, one that comes later than so many rounds not at all.
"""

_HASH_CHARACTERS = 32


class Documents:
    """One pass over a log. What `hear` is told waits for the next `check`. Documents on rounds up to record `begin`,
    before which nothing was decided, go to `stray`.
    """

    def __init__(self, begin: int = 0, stray: list[tuple[str, bytes]] | None = None) -> None:
        self._begin, self._stray = begin, [] if stray is None else stray
        self._heard: list[tuple[str, bytes]] = []
        self._early: dict[str, list[tuple[str, bytes]]] = {}
        self._opening: Record | None = None
        self._answers: dict[str, Answer] = {}
        self._over: dict[str, str] = {}

    def hear(self, name: str, content: bytes) -> None:
        """A document was read."""
        self._heard.append((name, content))

    def opened(self, answers: Answers) -> None:
        """What is decided again for the opening that was folded last. Raises Diverged: what came before it differs."""
        self._opening = answers.opening
        self._answers = {each.record.id: each for each in (*answers.closing, *answers.forecasts)}
        for name, content in self._early.pop(answers.opening.id, ()):
            self._check(name, content, answers.opening.seq)

    def ended(self, read: dict[str, bytes]) -> None:
        """The round is over. `read`: what its readers made of the topics, by id. Raises Diverged."""
        if self._opening is None:
            return
        for name in self._answers:
            if name in read:
                self._check(name, read[name], self._opening.seq)
        text = "".join(content_hash(answer.content)[:_HASH_CHARACTERS] for answer in self._answers.values())
        self._over[self._opening.id] = text
        if len(self._over) > ROUNDS_KEPT:
            del self._over[next(iter(self._over))]
        self._opening, self._answers = None, {}

    def check(self, seq: int) -> None:
        """Compares what was read. `seq`: of the record folded last. Raises Diverged."""
        heard, self._heard = self._heard, []
        for name, content in heard:
            self._check(name, content, seq)

    def decided(self, most: int) -> dict[str, str]:
        """What was decided in the last rounds, at most that number, for `judge`."""
        return dict(list(self._over.items())[-most:])

    def judge(self, documents: list[tuple[str, bytes]], decided: dict[str, str], seq: int) -> None:
        """Compares documents that came behind record `seq` with what was decided before it. Raises Diverged."""
        self._over = decided
        for name, content in documents:
            self._check(name, content, seq)

    def _check(self, name: str, content: bytes, seq: int) -> None:
        topic, _, rest = name.partition("/")
        place, _, opening = rest.partition("/")
        if self._opening is not None and opening == self._opening.id:
            answer = self._answers.get(name)
            if answer is None:
                raise _wrong(name, topic, place, opening, "nothing of the kind was to be decided")
            if content != answer.content:
                raise _differs(name, topic, place, opening, content, answer.content)
        elif opening in self._over:
            mine, recorded = content_hash(content), self._over[opening]
            kept = [recorded[at : at + _HASH_CHARACTERS] for at in range(0, len(recorded), _HASH_CHARACTERS)]
            if mine[:_HASH_CHARACTERS] not in kept:
                what = "it came after its round, and is none of the round's answers"
                raise _wrong(name, topic, place, opening, what, "hash", mine, "another")
        elif seq_of(opening) > seq:
            self._early.setdefault(opening, []).append((name, content))
        elif 0 < seq_of(opening) <= self._begin:
            self._stray.append((name, content))


def seq_of(opening: str) -> int:
    """The seq in the name of an opening, CELL/SEQ/rROUND/PREFIX; 0 where it is no such name."""
    parts = opening.rsplit("/", 3)
    return int(parts[1]) if len(parts) == 4 and parts[1].isdecimal() else 0


def _differs(name: str, topic: str, place: str, opening: str, recorded: bytes, decided: bytes) -> Diverged:
    try:
        found = first_difference(json.loads(recorded), json.loads(decided))
    except ValueError:
        found = None
    path, *sides = found or ("hash", content_hash(recorded), content_hash(decided))
    return _wrong(name, topic, place, opening, "the documents differ", path, *map(shown, sides))


def _wrong(
    name: str, topic: str, place: str, opening: str, what: str, path: str = "", recorded: str = "", decided: str = ""
) -> Diverged:
    shard, _, of = place.partition("-")
    round_number = int(opening.rsplit("/", 2)[1].removeprefix("r"))
    where = f"{topic} of shard {shard} of {of}"
    return Diverged(Difference(seq_of(opening), round_number, where, f"{name}: {what}", path, recorded, decided))
