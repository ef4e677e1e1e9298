"""How far forecasts were off: each is kept until its horizon has passed, and compared with what tasks gave back.

What counts, in forecast and outcome alike, is what tasks give back that ran when the forecast was made. The error of a
forecast at a horizon is the mean over the classes of the largest difference in any kind, in millionths of the cell.
"""

from dataclasses import dataclass, field

from schemas.quantities import MILLIONTHS, Vector

HORIZONS_S = (1, 5, 10, 30)
SAMPLE_MS = 5_000
"""The least time between two forecasts that are compared with what happened: more would cost more with every end."""
SAMPLES_MAX = 64
"""Forecasts after which all those of a score count half as much, so that it follows the latest."""


@dataclass(slots=True)
class Sample:
    """Forecasts made at `at_ms`: `forecast` by forecaster, horizon and class; `outcome` by horizon and class, each what
    came after the horizon before it. Horizons end with a whole second.
    """

    at_ms: int
    forecast: list[list[list[Vector]]]
    outcome: list[list[Vector]]


@dataclass(slots=True)
class Score:
    """By horizon the sum of the errors, in millionths of the cell, and how many they are."""

    sums: list[int] = field(default_factory=lambda: [0] * len(HORIZONS_S))
    samples: list[int] = field(default_factory=lambda: [0] * len(HORIZONS_S))


def horizon_ms(sample: Sample, at: int) -> int:
    """When a horizon of a sample ends."""
    return (sample.at_ms // 1_000 + HORIZONS_S[at]) * 1_000


def note_end(samples: list[Sample], job_class: int, start_ms: int, at_ms: int, demand: Vector) -> None:
    """A task that started at `start_ms` gives back what it held."""
    for sample in reversed(samples):
        if start_ms > sample.at_ms or at_ms <= sample.at_ms:
            continue
        for at in range(len(HORIZONS_S)):
            if at_ms <= horizon_ms(sample, at):
                if job_class < len(sample.outcome[at]):
                    _add(sample.outcome[at][job_class], demand)
                break


def settle(samples: list[Sample], scores: list[Score], capacity: Vector, now_ms: int) -> list[Sample]:
    """Counts the samples whose last horizon has passed; returns those that are left."""
    left = []
    for sample in samples:
        if horizon_ms(sample, len(HORIZONS_S) - 1) >= now_ms:
            left.append(sample)
            continue
        came: list[Vector] = [{} for _ in sample.outcome[0]]
        for at, outcome in enumerate(sample.outcome):
            _add_all(came, outcome)  # What came within the horizons before it came within this one.
            for forecast, score in zip(sample.forecast, scores, strict=True):
                _count(score, at, error_ppm(forecast[at], came, capacity))
    return left


def came_by(sample: Sample, at: int) -> list[Vector]:
    """What tasks of each class gave back within a horizon of a sample."""
    came: list[Vector] = [{} for _ in sample.outcome[at]]
    for outcome in sample.outcome[: at + 1]:
        _add_all(came, outcome)
    return came


def error_ppm(forecast: list[Vector], came: list[Vector], capacity: Vector) -> int:
    """The error of one forecast, by class, against what came."""
    total = 0
    for expected, real in zip(forecast, came, strict=True):
        if not expected and not real:
            continue  # So it is in most rounds: tasks run for longer than horizons reach.
        largest = 0
        for kind, amount in capacity.items():
            if amount > 0:
                off = abs(expected.get(kind, 0) - real.get(kind, 0))
                largest = max(largest, off * MILLIONTHS // amount)
        total += largest
    return total // len(came) if came else 0


def mean_errors(score: Score) -> list[int]:
    """The mean error by horizon, in millionths of the cell; 0 where nothing was compared."""
    return [total // count if count else 0 for total, count in zip(score.sums, score.samples, strict=True)]


def best(scores: list[Score], otherwise: int) -> int:
    """Which forecaster was off least over all horizons; `otherwise` where nothing tells them apart."""
    off = [sum(mean_errors(score)) for score in scores]
    return otherwise if off[otherwise] == min(off) else off.index(min(off))


def _count(score: Score, at: int, error: int) -> None:
    if score.samples[at] >= SAMPLES_MAX:
        score.samples[at] //= 2
        score.sums[at] //= 2
    score.samples[at] += 1
    score.sums[at] += error


def _add_all(totals: list[Vector], vectors: list[Vector]) -> None:
    for total, vector in zip(totals, vectors, strict=True):
        _add(total, vector)


def _add(total: Vector, demand: Vector) -> None:
    for kind, amount in demand.items():
        total[kind] = total.get(kind, 0) + amount
