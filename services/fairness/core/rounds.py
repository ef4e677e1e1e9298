"""How far rounds have come, and whether anything has happened since that another may have to answer."""

from dataclasses import dataclass


@dataclass(slots=True)
class Rounds:
    """`changed_seq`: seq of the last fact that may lead to a grant; `opened`: of the last opening; `settled`: of the
    last one that was closed. `full_round`: the last round in which everything was published; `wake_ms`: the wake-up
    that this core asked for last.
    """

    changed_seq: int = 0
    opened: int = 0
    settled: int = 0
    full_round: int = 0
    wake_ms: int | None = None

    def note_change(self, seq: int) -> None:
        """A fact may lead to a grant."""
        self.changed_seq = seq

    def note_time(self, seq: int, wake_ms: int | None) -> None:
        """Somebody is woken who asked for it. At another time than this core asked for, a job waited for that time, and
        may ask for something now.
        """
        if wake_ms != self.wake_ms:
            self.changed_seq = seq

    def open(self, seq: int) -> None:
        """A round has been opened."""
        self.opened = seq

    def close(self) -> None:
        """The round that was opened last is closed."""
        self.settled = self.opened

    def has_news(self) -> bool:
        """Whether a fact may lead to a grant that no round which is closed has answered."""
        return self.changed_seq > self.settled

    def is_full(self, round_: int, keyframe_rounds: int) -> bool:
        """Whether a round publishes everything: one in `keyframe_rounds` does."""
        return round_ - self.full_round >= keyframe_rounds

    def publish_all(self, keyframe_rounds: int) -> None:
        """The next round publishes everything."""
        self.full_round = -keyframe_rounds
