"""What the verification of a log came to."""

from dataclasses import asdict, dataclass, field

from schemas.wording import plural
from services.replay.differences import Difference


@dataclass(slots=True)
class Span:
    """Rounds of other rules, whose recorded winners were fed."""

    rules: int
    round_first: int
    round_last: int


@dataclass(slots=True)
class Verdict:
    """What a verification came to. `prefix`: hash chain over the records up to `seq`, the last one it went through."""

    source: str
    records: int = 0
    seq: int = 0
    rounds_compared: int = 0
    rounds_abandoned: int = 0
    fed: list[Span] = field(default_factory=list)
    prefix: str = ""
    difference: Difference | None = None

    @property
    def is_same(self) -> bool:
        """Whether something was compared, and all of it was the same."""
        return self.difference is None and self.rounds_compared > 0

    def document(self) -> dict[str, object]:
        """As plain data, for --json."""
        return {"same": self.is_same, **asdict(self)}

    def text(self) -> str:
        """For people."""
        compared = f"{plural(self.rounds_compared, 'round')} compared, {plural(self.records, 'record')}"
        fed = "".join(f"; {_rounds(s)} of rules {s.rules}: fed, not compared" for s in self.fed)
        if self.difference is None:
            word = "same" if self.rounds_compared else "nothing of these rules to compare"
            return f"{self.source}: {word}: {compared}{fed}"
        d = self.difference
        where = f"round {d.round}, seq {d.seq}, {d.topic}: {d.what}"
        path = f"\n  at {d.path}\n  recorded {d.recorded}\n  decided  {d.decided}" if d.path else ""
        return f"{self.source}: diverged: {where}{path}\n  {compared} before{fed}"


def _rounds(span: Span) -> str:
    if span.round_first == span.round_last:
        return f"round {span.round_first} is"
    return f"rounds {span.round_first} to {span.round_last} are"
