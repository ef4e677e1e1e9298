"""What the verification of a log came to."""

from dataclasses import asdict, dataclass, field

from schemas.wording import plural
from services.replay.differences import Difference


@dataclass(slots=True)
class Span:
    """Rounds of other rules, whose recorded winners were fed. Where they were decided again beside that:
    `rounds_compared` of them, `rounds_differing` otherwise than recorded, first as `difference` says.
    """

    rules: int
    round_first: int
    round_last: int
    rounds_compared: int = 0
    rounds_differing: int = 0
    difference: Difference | None = None


@dataclass(slots=True)
class Verdict:
    """What a verification came to. `prefix`: hash chain over the records up to `seq`, the last one it went through.
    `unseen`: it began behind this record, with the states of a checkpoint; what was before is gone.
    """

    source: str
    records: int = 0
    seq: int = 0
    rounds_compared: int = 0
    rounds_abandoned: int = 0
    fed: list[Span] = field(default_factory=list)
    prefix: str = ""
    difference: Difference | None = None
    unseen: int = 0

    @property
    def is_same(self) -> bool:
        """Whether something was compared, and all of it was the same."""
        compared = self.rounds_compared + sum(span.rounds_compared for span in self.fed)
        return self.difference is None and compared > 0 and not any(span.rounds_differing for span in self.fed)

    def document(self) -> dict[str, object]:
        """As plain data, for --json."""
        return {"same": self.is_same, **asdict(self)}

    def text(self) -> str:
        """For people."""
        compared = f"{plural(self.rounds_compared, 'round')} compared, {plural(self.records, 'record')}"
        seen = f"; records 1 to {self.unseen:,} were not seen: they have been trimmed" if self.unseen else ""
        fed = seen + "".join(f"; {_rounds(s)} of rules {s.rules}: {_across(s)}" for s in self.fed)
        if self.difference is None:
            word = "same" if self.is_same else "nothing of these rules to compare"
            if any(span.rounds_differing for span in self.fed):
                word = "decided otherwise under other rules"
            return f"{self.source}: {word}: {compared}{fed}"
        return f"{self.source}: diverged: {_told(self.difference)}\n  {compared} before{fed}"


def _told(d: Difference) -> str:
    where = f"round {d.round}, seq {d.seq}, {d.topic}: {d.what}"
    return where + (f"\n  at {d.path}\n  recorded {d.recorded}\n  decided  {d.decided}" if d.path else "")


def _across(span: Span) -> str:
    if not span.rounds_compared:
        return "fed, not compared"
    if span.difference is None:
        return f"{plural(span.rounds_compared, 'round')} compared, the same under these rules"
    few = f"{span.rounds_differing:,} of {plural(span.rounds_compared, 'round')} compared are decided otherwise"
    return f"{few} under these rules, first\n  {_told(span.difference)}"


def _rounds(span: Span) -> str:
    if span.round_first == span.round_last:
        return f"round {span.round_first} is"
    return f"rounds {span.round_first} to {span.round_last} are"
