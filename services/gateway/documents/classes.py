"""Classes of jobs as a JSON document: their pools over time, what is forecast for them, how good forecasts were."""

from typing import Any

from largesse.lifecycle.job_classes import class_names, has_pools, released_between, thresholds_of
from schemas import Releases, Vector
from schemas.quantities import MILLIONTHS, quantity_texts
from services.gateway.documents.tally import Counts
from services.gateway.view.state import State

HORIZONS_S = (1, 5, 10, 30)
"""For which a class shows what is to come; those by which forecasts are scored (services/estimator/scores.py)."""


def known_classes(state: State) -> list[str]:
    """The names of the classes, and of those that the policy had when jobs ended that are still listed."""
    ended = {job.job_class: True for job in state.ended.values() if job.job_class is not None}
    return list(dict.fromkeys([*class_names(state.policy), *sorted(ended)]))


def classes_document(state: State, counts: Counts) -> dict[str, Any]:
    """Classes with their pools, what they hold, what waits and what is to come; the pools over time; the scores."""
    pools, forecast = state.pools[-1].pools_ppm if state.pools else [], state.forecast
    thresholds = thresholds_of(state.policy)
    classes = []
    for at, (name, of_class) in enumerate(counts.classes.items()):
        pool = pools[at] if at < len(pools) else None
        room = (
            {kind: amount * pool // MILLIONTHS for kind, amount in counts.capacity.items()} if pool is not None else {}
        )
        classes.append(
            {
                "class": name,
                "threshold": thresholds[at] / 1_000 if at < len(thresholds) else None,
                "pool": pool / MILLIONTHS if pool is not None else None,
                "room": quantity_texts(room),
                "held": quantity_texts({kind: held for kind, held in sorted(of_class.held.items()) if held}),
                "jobs": {"running": of_class.running, "waiting": of_class.waiting},
                "coming": [
                    {"seconds": horizon, "amount": quantity_texts(_coming(forecast, at, state.time, horizon))}
                    for horizon in HORIZONS_S
                ],
            }
        )
    scores = [] if forecast is None else forecast.scores
    return {
        "pools": "on" if has_pools(state.policy) else "off",
        "classes": classes,
        "forecaster": forecast.forecaster if forecast is not None else None,
        "forecast_ms": forecast.at_ms if forecast is not None else None,
        "scores": [
            {
                "forecaster": score.forecaster,
                "errors": [
                    {"seconds": horizon, "error": error / MILLIONTHS, "forecasts": count}
                    for horizon, error, count in zip(HORIZONS_S, score.errors_ppm, score.samples, strict=True)
                ],
            }
            for score in scores
        ],
        "history": [
            {"since_ms": row.since_ms, "pools": [pool / MILLIONTHS for pool in row.pools_ppm]} for row in state.pools
        ],
    }


def _coming(forecast: Releases | None, job_class: int, now_ms: int, horizon_s: int) -> Vector:
    """What is forecast to come back from now on within so many seconds."""
    if forecast is None:
        return {}
    until_ms = (now_ms // 1_000 + horizon_s) * 1_000
    return released_between(forecast.curves, job_class, now_ms - forecast.at_ms, until_ms - forecast.at_ms)
