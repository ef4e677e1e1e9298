"""Follows the classes of jobs in a simulated cell, from its records and from what admission and estimator count."""

from collections import deque

from largesse.lifecycle.job_classes import class_names
from schemas import Record, Releases, RoundClosed, RoundOpened, Vector
from schemas.quantities import MILLIONTHS
from services.admission.core.state import Demand
from services.estimator.core.state import FORECASTERS
from services.estimator.scores import HORIZONS_S, Sample, came_by, horizon_ms, mean_errors
from services.simulator.class_history import ClassHistory, ForecasterScore
from services.simulator.engine import Cell

HORIZON_S = 10
"""The horizon at which forecasts are shown beside what came."""

_HORIZON = HORIZONS_S.index(HORIZON_S)


class ClassWatch:
    """Fills a history while a cell runs. Samples of forecasts are the estimator's own, so that the chart shows what its
    scores are made of; the thresholds of the classes must not change meanwhile.
    """

    def __init__(self, cell: Cell, history: ClassHistory) -> None:
        self._cell, self._history = cell, history
        self._samples: deque[tuple[Sample, int]] = deque()  # With the forecaster in force. Their horizon is not over.
        self._sampled_ms: int | None = None
        self._used_ms = [0] * len(FORECASTERS)
        self._used: tuple[int, int] | None = None  # Forecaster in force, since when.

    def observe(self, record: Record) -> None:
        """A record of the log that all cores have folded."""
        body = record.body
        if isinstance(body, RoundOpened):
            if body.pools_ppm:
                self._opened(body.pools_ppm, record.time)
        elif isinstance(body, Releases):
            self._count_use(record.time)
            self._used = FORECASTERS.index(body.forecaster), record.time
        elif isinstance(body, RoundClosed) and self._history.has_pools:
            self._note_held(record.time)  # Whatever ends opens a round, so that no end is missed.

    def close(self) -> None:
        """The run is over, and no task runs any more: whatever was forecast has come, or never will."""
        history, cell = self._history, self._cell
        if not history.has_pools:
            return
        self._compare(None)
        self._count_use(cell.time)
        history.horizons_s = list(HORIZONS_S)
        history.scores = [
            ForecasterScore(name, [error / MILLIONTHS for error in mean_errors(score)], score.samples.copy(), used_ms)
            for name, score, used_ms in zip(FORECASTERS, cell.estimator.scores, self._used_ms, strict=True)
        ]
        history.end_ms = cell.time
        history.pools.close(cell.time)
        history.held.close(cell.time)
        if history.forecasts.times_ms:
            history.forecasts.close(history.forecasts.times_ms[-1])  # A forecast stands for itself: it does not last.

    def _opened(self, pools_ppm: list[int], time: int) -> None:
        history, estimator = self._history, self._cell.estimator
        history.classes = class_names(self._cell.admission.policy)
        history.horizon_s = HORIZON_S
        pools = [pool / MILLIONTHS for pool in pools_ppm]
        if not history.pools.values or history.pools.values[-1] != pools:
            history.pools.put(time, pools)
        self._compare(time)
        if estimator.samples and estimator.samples[-1].at_ms != self._sampled_ms:
            sample = estimator.samples[-1]
            self._samples.append((sample, FORECASTERS.index(estimator.forecaster)))
            self._sampled_ms = sample.at_ms

    def _note_held(self, time: int) -> None:
        """What admission sizes the pools by."""
        demand: Demand | None = self._cell.admission.demand
        held = self._history.held
        if demand is None:
            return
        capacity = self._cell.admission.capacity
        shares = [_share(tally.held, _dominant(capacity, tally.held), capacity) for tally in demand.classes]
        if not held.values or held.values[-1] != shares:
            held.put(time, shares)

    def _compare(self, time: int | None) -> None:
        """Samples whose horizon is over at `time`; None: all."""
        capacity = self._cell.estimator.capacity
        while self._samples and (time is None or horizon_ms(self._samples[0][0], _HORIZON) < time):
            sample, forecaster = self._samples.popleft()
            pairs = list(zip(sample.forecast[forecaster][_HORIZON], came_by(sample, _HORIZON), strict=True))
            kinds = [_dominant(capacity, forecast, came) for forecast, came in pairs]
            forecasts = [_share(forecast, kind, capacity) for (forecast, _), kind in zip(pairs, kinds, strict=True)]
            outcomes = [_share(came, kind, capacity) for (_, came), kind in zip(pairs, kinds, strict=True)]
            self._history.forecasts.put(sample.at_ms, forecasts + outcomes)

    def _count_use(self, time: int) -> None:
        if self._used is not None:
            forecaster, since_ms = self._used
            self._used_ms[forecaster] += time - since_ms


def _dominant(capacity: Vector, *amounts: Vector) -> str | None:
    """The kind in which one of the vectors has the largest part of the cell; None without capacity."""
    kinds = [kind for kind, amount in sorted(capacity.items()) if amount > 0]
    return max(kinds, key=lambda kind: max(_share(vector, kind, capacity) for vector in amounts), default=None)


def _share(vector: Vector, kind: str | None, capacity: Vector) -> float:
    return vector.get(kind, 0) / capacity[kind] if kind is not None else 0.0
