"""Series of values over time, thinned out as they grow long."""

from dataclasses import dataclass, field

POINTS_MAX = 400
"""Of a series: more than anybody sees in a chart."""


@dataclass(slots=True)
class Steps:
    """Several values over time, each of which lasts until the next point. A series of more than `points_max` points is
    thinned out: what is older becomes means over equal intervals, weighted by time, so that no area changes. `mean_ms`:
    the length of these intervals, 0 while every point is exact.
    """

    points_max: int = POINTS_MAX
    times_ms: list[int] = field(default_factory=list)
    values: list[list[float]] = field(default_factory=list)
    mean_ms: int = 0

    def put(self, at_ms: int, values: list[float]) -> None:
        """The values from `at_ms` on, no earlier than the last point; they replace those of the same moment."""
        if self.times_ms and self.times_ms[-1] == at_ms:
            self.values[-1] = values
            return
        assert not self.times_ms or at_ms > self.times_ms[-1], f"time goes back to {at_ms} ms"
        self.times_ms.append(at_ms)
        self.values.append(values)
        if len(self.times_ms) > self.points_max:
            self._thin_out()

    def _thin_out(self) -> None:
        """Halves the points. The last one stays: how long it will last is not known yet."""
        first_ms, last_ms = self.times_ms[0], self.times_ms[-1]
        width_ms = -(-(last_ms - first_ms) // (self.points_max // 2))
        sums: dict[int, list[float]] = {}
        for i, values in enumerate(self.values[:-1]):
            from_ms, until_ms = self.times_ms[i], self.times_ms[i + 1]
            while from_ms < until_ms:
                interval = (from_ms - first_ms) // width_ms
                end_ms = min(until_ms, first_ms + (interval + 1) * width_ms)
                total = sums.setdefault(interval, [0.0] * len(values))
                for at, value in enumerate(values):
                    total[at] += value * (end_ms - from_ms)
                from_ms = end_ms
        starts_ms = [first_ms + interval * width_ms for interval in sums]
        lengths_ms = [min(width_ms, last_ms - start_ms) for start_ms in starts_ms]
        means = [
            [value / length_ms for value in total] for total, length_ms in zip(sums.values(), lengths_ms, strict=True)
        ]
        self.times_ms = [*starts_ms, last_ms]
        self.values = [*means, self.values[-1]]
        self.mean_ms = width_ms
