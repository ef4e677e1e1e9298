"""What the measurement under sustained load calls flat, and what it does not."""

import pytest

from benchmarks.sustained import judged, verdict


def looks(name, *values):
    return [{"s": 5.0 * at, name: value} for at, value in enumerate(values)]


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        pytest.param("up MiB", [100, 300, 300, 302, 298, 301], "flat", id="grown in the first half only"),
        pytest.param("up MiB", [300, 300, 300, 340, 380, 420], "grows", id="memory that grows"),
        pytest.param("up MiB", [20, 20, 20, 22, 25, 28], "flat", id="a change of a few megabytes"),
        pytest.param("up descriptors", [20, 20, 20, 40, 60, 80], "grows", id="descriptors that leak"),
        pytest.param("nodes folders", [0, 9_000, 9_900, 10_000, 10_000, 10_001], "flat", id="folders at their limit"),
        pytest.param("tasks/s", [700, 700, 700, 400, 300, 100], "falls", id="a rate that falls"),
        pytest.param("tasks/s", [700, 650, 700, 660, 700, 690], "flat", id="a rate that sways"),
        pytest.param("bus log_MiB", [1, 2, 3, 4, 5, 6], "log", id="the log"),
        pytest.param("bus snapshots_MiB", [1, 10, 20, 30, 40, 50], "grows", id="snapshots that pile up"),
    ],
)
def test_a_series_is_judged_by_its_second_half(name, values, said):
    assert verdict(looks(name, *values), name) == said


def test_a_rate_that_rises_is_no_fault_and_one_that_falls_is():
    assert judged(looks("tasks/s", 100, 100, 100, 200, 300, 400))[1]
    assert not judged(looks("tasks/s", 400, 400, 400, 300, 200, 100))[1]
    assert not judged(looks("start p50_ms", 10, 10, 10, 20, 30, 40))[1]
