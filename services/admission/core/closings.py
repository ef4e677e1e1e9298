"""The closings of rounds that a sequencer has met, with the hash chain up to each: a checkpoint may name no other."""

from schemas import Checkpoint, InputRefused

CLOSINGS_KEPT = 20_000
"""Whoever makes a checkpoint folds to the log's end, and tells of it before this many more rounds are over."""


class Closings:
    """The last ones, by seq."""

    def __init__(self) -> None:
        self._prefixes: dict[int, str] = {}

    def note(self, seq: int, prefix: str) -> None:
        """A closing, or an abandoned round."""
        self._prefixes[seq] = prefix
        if len(self._prefixes) > CLOSINGS_KEPT:
            del self._prefixes[next(iter(self._prefixes))]

    def clear(self) -> None:
        """Forgets all: another order begins."""
        self._prefixes.clear()

    @property
    def first(self) -> int:
        """The seq of the first one; 0 where there is none."""
        return next(iter(self._prefixes), 0)

    def kept(self) -> list[tuple[int, str]]:
        """All that are remembered, in order."""
        return list(self._prefixes.items())

    def refusal(self, asked: Checkpoint) -> tuple[str, str] | None:
        """The field for which a checkpoint is none of this log, and why; None: the log has its closing."""
        prefix = self._prefixes.get(asked.closing)
        if prefix is None:
            known = f"those from {self.first} on" if self._prefixes else "none yet"
            why = f"no round ends at seq {asked.closing} as far as this sequencer knows ({known}): make another one"
            return "closing", why
        if prefix != asked.prefix:
            return "prefix", f"the log has another prefix behind seq {asked.closing}: the checkpoint is of another log"
        return None

    def judge(self, asked: Checkpoint, taken: dict[str, int]) -> Checkpoint | InputRefused:
        """The record that a message which tells of a checkpoint becomes. `taken`: by topic, the last offset."""
        refusal = self.refusal(asked)
        for position in asked.positions:
            last = taken.get(position.topic, -1)
            if refusal is None and position.offset > last:
                refusal = "positions", f"{position.topic} has been read up to {last}, not {position.offset}"
        if refusal is None:
            return asked
        return InputRefused("config", refusal[1], f"checkpoint.{refusal[0]}", 0, "", asked.author)
