"""What is kept of predictions of starts: those of jobs that wait still, and how wrong the last ones were."""

from dataclasses import dataclass, field
from typing import NamedTuple

SCORED_MAX = 100
"""Scores that are kept, the last ones."""

RATIOS_MIN = 5
"""With fewer scores nothing is corrected."""

PERMILLE = 1_000


class Start(NamedTuple):
    """When something starts; None: not known."""

    earliest_ms: int
    likely_ms: int | None
    latest_ms: int | None


@dataclass(slots=True)
class Predicted:
    """What was said of a job at `at_ms`. `plain_ms`: how long it had to wait from then on, before that was corrected by
    what came of others.
    """

    at_ms: int
    earliest_ms: int
    likely_ms: int
    latest_ms: int
    plain_ms: int


@dataclass(slots=True)
class Score:
    """What came of it: how long the job was said to wait (`said_ms`; `plain_ms` as above) and did, and whether it
    started within the span that was told.
    """

    queue: str
    said_ms: int
    plain_ms: int
    waited_ms: int
    inside: bool


@dataclass(slots=True)
class Predictions:
    """`new`: jobs that no round has considered; `said`: what was said of those that wait; `scores`: of those that have
    started, the last ones; `earned`: steps that the next prediction may take.
    """

    new: dict[str, bool] = field(default_factory=dict)
    said: dict[str, Predicted] = field(default_factory=dict)
    scores: list[Score] = field(default_factory=list)
    earned: int = 0


def ratios_of(scores: list[Score]) -> list[int]:
    """How long jobs waited of what they were said to before any correction, in thousandths, the least first."""
    return sorted(score.waited_ms * PERMILLE // score.plain_ms for score in scores if score.plain_ms > 0)


def corrected(plain: Start, now_ms: int, ratios: list[int]) -> Start:
    """A prediction by what came of the last ones: `likely` by the middle of their ratios, and a span that reaches from
    the tenth to the ninth tenth of them at the least.
    """
    if plain.likely_ms is None or plain.latest_ms is None or len(ratios) < RATIOS_MIN:
        return plain
    wait_ms = plain.likely_ms - now_ms
    tenth = len(ratios) // 10
    low_ms, likely_ms, high_ms = (
        now_ms + wait_ms * ratios[at] // PERMILLE for at in (tenth, len(ratios) // 2, len(ratios) - 1 - tenth)
    )
    earliest_ms = min(plain.earliest_ms, low_ms)
    return Start(earliest_ms, max(earliest_ms, likely_ms), max(plain.latest_ms, likely_ms, high_ms))


class Accuracy(NamedTuple):
    """Of the last predictions of likely starts: how many there were (`jobs`), by how much half of them were off at the
    most, in ms and in thousandths of the wait, and how many starts lay in the span that was told.
    """

    jobs: int
    error_ms: int
    error_permille: int
    inside: int


def accuracy_of(scores: list[Score]) -> Accuracy | None:
    """None: nothing has been scored."""
    if not scores:
        return None
    errors = sorted(abs(score.said_ms - score.waited_ms) for score in scores)
    relative = sorted(abs(score.said_ms - score.waited_ms) * PERMILLE // max(1, score.waited_ms) for score in scores)
    middle = (len(scores) - 1) // 2
    return Accuracy(len(scores), errors[middle], relative[middle], sum(score.inside for score in scores))
