"""What happened to the classes of jobs in one simulated run: their pools, what they held, forecasts and what came.

Filled by class_watch.py, drawn by the report. All parts are of the cell: 1.0 is all of it.
"""

from dataclasses import dataclass, field

from services.simulator.steps import Steps


@dataclass(frozen=True, slots=True)
class ForecasterScore:
    """How far a forecaster was off, by horizon, as a mean over `samples` forecasts (later ones count more), and for how
    long its forecasts were the ones in force.
    """

    forecaster: str
    errors: list[float]
    samples: list[int]
    used_ms: int


@dataclass(slots=True)
class ClassHistory:
    """Series by class, in order of `classes`. `held`: the dominant share of what tasks of the class hold. `forecasts`:
    what was forecast to be given back within `horizon_s` by tasks running then, by class, then what they gave back, by
    class; of each class in the kind of resource in which either was most. All is empty where the run had no pools.
    Series end at `end_ms`.
    """

    classes: list[str] = field(default_factory=list)
    pools: Steps = field(default_factory=Steps)
    held: Steps = field(default_factory=Steps)
    forecasts: Steps = field(default_factory=Steps)
    horizon_s: int = 0
    horizons_s: list[int] = field(default_factory=list)
    scores: list[ForecasterScore] = field(default_factory=list)
    end_ms: int = 0

    @property
    def has_pools(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.pools.times_ms)
