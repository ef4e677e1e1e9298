"""Which forecast is in force from now on, if it is another one."""

from bisect import bisect_right
from typing import Final

from largesse.core import OpenRound
from schemas import ForecastScore, ReleaseCurve, Releases
from services.estimator.core.forecasts import SECOND_MS, refresh, to_come
from services.estimator.core.state import FORECASTERS, State
from services.estimator.scores import HORIZONS_S, best, mean_errors

_ANY: Final = 1 << 60
"""Above any amount."""

FORECAST_GAP_MS = 1_000
"""No two forecasts are closer together."""

MOVED_PERMILLE = 10
"""A forecast is said again when what it says has moved by so much of the cell, at any horizon that is scored."""


def decide(state: State, opened: OpenRound) -> list[Releases]:
    """The forecast, if another forecaster is better now, or it has moved by MOVED_PERMILLE since the one in force."""
    now_ms = opened.time
    if not state.on or (state.forecast_seq and now_ms - state.forecast_ms < FORECAST_GAP_MS):
        return []
    chosen = best(state.scores, FORECASTERS.index(state.forecaster))
    curves = _curves(state, chosen, now_ms)
    if FORECASTERS[chosen] == state.forecaster and not _has_moved(state, curves, now_ms):
        return []
    scores = [
        ForecastScore(name, mean_errors(score), score.samples.copy())
        for name, score in zip(FORECASTERS, state.scores, strict=True)
    ]
    return [Releases(state.forecast_seq, now_ms, None, FORECASTERS[chosen], curves, scores)]


def _curves(state: State, forecaster: int, now_ms: int) -> list[ReleaseCurve]:
    sums = refresh(state, now_ms, phases=FORECASTERS[forecaster] == "ramp")
    until_s = (now_ms + state.policy.forecast_horizon_ms) // SECOND_MS
    found = []
    for job_class, kinds in enumerate(sums.seconds[forecaster]):
        for kind in sorted(kinds):
            points = to_come(sums, forecaster, job_class, kind, now_ms, until_s)
            if points:
                curve = [[second * SECOND_MS - now_ms, amount] for second, amount in points]
                found.append(ReleaseCurve(job_class, kind, curve))
    return found


def _has_moved(state: State, curves: list[ReleaseCurve], now_ms: int) -> bool:
    """Compares what both say will come from now on."""
    before = {(curve.job_class, curve.kind): curve.points for curve in state.forecast}
    after = {(curve.job_class, curve.kind): curve.points for curve in curves}
    passed_ms = now_ms - state.forecast_ms
    for key in [*before, *after]:
        old, new = before.get(key, []), after.get(key, [])
        least, over = state.capacity.get(key[1], 0) * MOVED_PERMILLE, _at(old, passed_ms)
        farthest_ms = (now_ms // SECOND_MS + HORIZONS_S[-1]) * SECOND_MS - now_ms
        if (not new or new[0][0] > farthest_ms) and _at(old, passed_ms + farthest_ms) == over:
            continue  # Nothing comes so soon by either, as what comes only grows.
        for horizon in HORIZONS_S:
            behind_ms = (now_ms // SECOND_MS + horizon) * SECOND_MS - now_ms
            was = _at(old, passed_ms + behind_ms) - over
            if abs(was - _at(new, behind_ms)) * 1_000 >= max(1, least):
                return True
    return False


def _at(points: list[list[int]], after_ms: int) -> int:
    """What comes by then, of points in order of time."""
    number = bisect_right(points, [after_ms, _ANY])
    return points[number - 1][1] if number else 0
