"""What the estimator answers an opening with: what running tasks will have given back by when."""

from dataclasses import dataclass, field
from typing import Literal

Forecaster = Literal["ramp", "durations"]
"""What a forecast of releases follows from: phases of starts and ends (DRESS, section IV), or expected run times."""


@dataclass(slots=True)
class ReleaseCurve:
    """What the running tasks of a class will have given back of one kind of resource, in base units. `points`:
    run-length coded, each `[after_ms, amount]`: from `after_ms` behind the forecast's time on it comes to `amount` in
    all, until the next point; before the first point to nothing.
    """

    job_class: int
    kind: str
    points: list[list[int]]


@dataclass(slots=True)
class ForecastScore:
    """How far a forecaster has been off so far. `errors_ppm`: by horizon (1, 5, 10 and 30 s), the mean absolute error
    of its forecasts, in millionths of the cell; `samples`: how many forecasts that is, older ones counting less.
    """

    forecaster: Forecaster
    errors_ppm: list[int]
    samples: list[int]


@dataclass(slots=True)
class Releases:
    """The estimator's forecast, made at `at_ms` by `forecaster`, the one with the better score. `curves`: all that are
    not empty, in order of class and kind; they replace those of the last record. `after`: seq of the last record of
    this kind in its prefix (0: none).
    """

    after: int
    at_ms: int
    wake_ms: int | None = None
    forecaster: Forecaster = "durations"
    curves: list[ReleaseCurve] = field(default_factory=list)
    scores: list[ForecastScore] = field(default_factory=list)
