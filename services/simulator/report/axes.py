"""Logarithmic axes of charts, and what is drawn along them."""

import math
from collections.abc import Sequence
from typing import Any

Figure = dict[str, Any]

POINTS_MAX = 400
"""Of a distribution: quantiles, evenly spaced."""


def quantiles(ranked: list[float]) -> tuple[list[float], list[float]]:
    """Values and the percent of all that are no larger: every value of a few, quantiles of many."""
    of = len(ranked)
    ranks = range(1, of + 1) if of <= POINTS_MAX else [-(-i * of // POINTS_MAX) for i in range(1, POINTS_MAX + 1)]
    values = [round(ranked[rank - 1], 6) for rank in ranks]
    shares = [round(100 * rank / of, 3) for rank in ranks]
    return values[:1] + values, [0.0, *shares] if values else []


def log_axis(title: str, values: Sequence[float]) -> Figure:
    """A logarithmic axis from the least to the largest value, with a little room around."""
    least, most = min(values, default=1), max(values, default=1)
    if least == most:
        least, most = least / 2, most * 2
    room = 0.03 * math.log10(most / least)
    ends = [round(math.log10(least) - room, 6), round(math.log10(most) + room, 6)]
    return {"type": "log", "title": {"text": title}, "range": ends, **log_ticks(least, most)}


def log_ticks(least: float, most: float) -> Figure:
    """1, 2 and 5 in every decade, or only powers of ten where there are many, written in full: plotly would write
    `2` and `5` between 10 and 100.
    """
    decades = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    steps = (1, 2, 5) if len(decades) <= 4 else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    if most / least < 4:  # Less than two of them would be seen.
        ticks = [
            round(step * 10.0**decade / 10, 12)
            for decade in decades
            for step in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
        ]
    return {"tickvals": ticks, "ticktext": [f"{tick:,.12g}" for tick in ticks]}
