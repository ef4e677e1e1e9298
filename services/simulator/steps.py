"""Series of values over time, thinned out as they grow long."""

from dataclasses import dataclass, field

POINTS_MAX = 400
"""Of a series: more than anybody sees in a chart."""


@dataclass(slots=True)
class Steps:
    """Several values over time, each of which lasts until the next point. A series of more than `points_max` points is
    thinned out: what is older becomes means over equal intervals, weighted by time, so that no area changes. `mean_ms`:
    the length of these intervals, 0 while every point is exact. Once such a series is closed, all of it is means, but
    for the last point.
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
            self._thin_out(self.points_max // 2)

    def close(self, end_ms: int) -> None:
        """The series is over. One that was thinned out gets means up to the end too, and there its last value."""
        if not self.mean_ms:
            return
        if end_ms > self.times_ms[-1]:
            self.times_ms.append(end_ms)
            self.values.append(self.values[-1])
        self._thin_out(self.points_max - 1, self.mean_ms)

    def _thin_out(self, means_max: int, width_ms_least: int = 0) -> None:
        """Means in place of all points but the last one: how long that will last is not known yet."""
        first_ms, last_ms = self.times_ms[0], self.times_ms[-1]
        width_ms = max(width_ms_least, -(-(last_ms - first_ms) // means_max))
        starts_ms: list[int] = []
        sums: list[list[float]] = []
        total: list[float] = []
        close_ms = first_ms  # Of the interval that is summed up.
        for i in range(len(self.values) - 1):
            values, from_ms, until_ms = self.values[i], self.times_ms[i], self.times_ms[i + 1]
            while from_ms < until_ms:
                if from_ms >= close_ms:
                    starts_ms.append(close_ms)
                    close_ms += width_ms
                    total = [0.0] * len(values)
                    sums.append(total)
                end_ms = until_ms if until_ms < close_ms else close_ms
                lasts_ms = end_ms - from_ms
                for at in range(len(values)):
                    total[at] += values[at] * lasts_ms
                from_ms = end_ms
        means = []
        for start_ms, total in zip(starts_ms, sums, strict=True):
            length_ms = min(width_ms, last_ms - start_ms)
            means.append([value / length_ms for value in total])
        self.times_ms = [*starts_ms, last_ms]
        self.values = [*means, self.values[-1]]
        self.mean_ms = width_ms
