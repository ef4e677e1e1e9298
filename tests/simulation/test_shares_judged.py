"""Drawn cells of the independent judge of shares: queues that hold one resource and ask for another, with maxima and
without. A queue that waits is below its part by weight for no longer than the longest task that comes and goes lasts,
and a second.
"""

import sys

import pytest

from tests.simulation.runs import simulated

SEEDS = (6001, 6020, 6024, 6072, 6098, 6104, 6112, 6203, 6239, 6267, 6288, 6300)
"""Beside the first and the last of three hundred: those in which `drf` has failed."""


@pytest.fixture(scope="module")
def judge(shared):
    """The judge's module, and the one that reads what it reads."""
    folder = str(shared / "checks")
    if folder not in sys.path:
        sys.path.append(folder)
    return pytest.importorskip("share_check", reason=f"no share_check.py in {folder}")


@pytest.mark.rotating(12)
@pytest.mark.parametrize("preset", ["hdrf", "drf", "dress", "rayon", "largesse"])
@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_stays_below_its_part_for_longer_than_a_task_lasts(judge, tmp_path, preset, seed):
    jobs, cluster = judge.drawn(str(seed))
    run = simulated(tmp_path, jobs, cluster, preset=preset)
    workload, capacity, schedule = (str(path) for path in run.files)
    below_ms, queue, held, due = judge.longest_below(
        judge.spec.read_workload(workload), judge.spec.read_cluster(capacity), judge.S.read_schedule(schedule)[0]
    )

    assert below_ms <= judge.SHORT_MS[1] + judge.SLACK_MS, f"{queue} held {held} and was due {due}"
