"""Recurring jobs in simulations with the knob `demands`: what a task truly uses is measured, and what later runs count
for follows from it.
"""

import pytest

from tests.simulation.runs import cluster, faults, job, simulated, stage

PRESETS = ("largesse", "carbyne", "dress", "fifo")


def nightly(number, *, true="1", asked="4", tasks=8, **given):
    wide = stage(tasks=tasks, duration_ms=10_000, demand={"cpu": true}, estimate_demand={"cpu": asked})
    return job(f"nightly-{number}", wide, submit_ms=100_000 * number, **given)


def lasted(run, number):
    row = run.row(f"nightly-{number}")
    return row["end_ms"] - row["submit_ms"]


@pytest.mark.parametrize("preset", PRESETS)
def test_the_fourth_run_has_twice_as_many_tasks_at_a_time(tmp_path, preset):
    run = simulated(tmp_path, map(nightly, range(6)), cluster(8), preset=preset, demands="history")

    assert [lasted(run, number) for number in range(6)] == [*[40_000] * 3, *[20_000] * 3]


def test_by_default_every_run_counts_for_what_it_asks_for(tmp_path):
    run = simulated(tmp_path, map(nightly, range(6)), cluster(8))

    assert [lasted(run, number) for number in range(6)] == [40_000] * 6


def test_honest_jobs_run_as_they_do_without_the_knob(tmp_path):
    honest = [nightly(number, true="4") for number in range(5)]
    run = simulated(tmp_path, honest, cluster(8), demands="history")

    assert [lasted(run, number) for number in range(5)] == [40_000] * 5


def test_a_job_that_needs_more_than_it_did_gets_it_run_by_run(tmp_path):
    """It is slower for a while: what is measured of it is what it had."""
    runs = [nightly(number, tasks=1) for number in range(3)]
    runs += [nightly(number, true="4", tasks=1) for number in range(3, 9)]
    run = simulated(tmp_path, runs, cluster(8), demands="history")

    # It counts for 2, 2.5, 3.125 and 3.907 of its 4 cores, and then for all of them.
    assert [lasted(run, number) for number in range(3, 9)] == [20_000, 16_000, 12_800, 10_239, 10_000, 10_000]


def test_a_run_is_what_an_independent_judge_would_have(shared, tmp_path):
    run = simulated(tmp_path, [nightly(number, true="4") for number in range(5)], cluster(8), demands="history")

    assert faults(shared, run, jain_too=True) == []
