"""The preset `slots` in whole runs: nodes hold more than they have, and tasks there run slower."""

import pytest

from schemas.edge.read import ConfigPatch, read_cluster, read_workload_line
from services.simulator.run import Options, simulate
from tests.simulation.runs import cluster, faults, job, simulated, stage


def run(tmp_path, *jobs, cores=4, count=None, slots=4, **knobs):
    return simulated(tmp_path, jobs, cluster(cores, count), preset="slots", slots_per_node=slots, **knobs)


def ends(found, name):
    return [line["end_ms"] for line in found.of(name)]


def test_tasks_that_ask_for_twice_the_node_take_twice_as_long(tmp_path):
    found = run(tmp_path, job("j", stage(tasks=8, demand={"cpu": "2"})))

    assert ends(found, "j") == [2_000] * 4 + [4_000] * 4
    assert found.result["utilisation"]["cpu"] == 1.0  # Of all cores, work was done: no more than there are.


def test_too_few_places_leave_a_node_idle(tmp_path):
    found = run(tmp_path, job("j", stage(tasks=4)), slots=2)

    assert ends(found, "j") == [1_000] * 2 + [2_000] * 2
    assert found.result["utilisation"]["cpu"] == 0.5


def test_a_start_slows_those_there_and_an_end_speeds_them_up(tmp_path):
    long = job("long", stage(duration_ms=3_000, demand={"cpu": "4"}))
    short = job("short", stage(duration_ms=1_000, demand={"cpu": "4"}), submit_ms=1_000)
    found = run(tmp_path, long, short)

    assert (ends(found, "short"), ends(found, "long")) == ([3_000], [4_000])


def test_a_time_limit_counts_the_time_that_passes(tmp_path):
    slow = {"tasks": 2, "duration_ms": 1_000, "demand": {"cpu": "4"}, "retries": 0}
    found = run(
        tmp_path, job("cut", stage(timeout_ms=1_999, **slow)), job("through", stage(timeout_ms=2_000, **slow)), slots=2
    )

    assert (found.row("cut")["outcome"], found.row("cut")["end_ms"]) == ("failed", 1_999)
    assert found.row("through")["outcome"] == "succeeded"


def test_what_a_task_truly_uses_slows_its_node_and_not_itself_beyond_that(tmp_path):
    underestimated = stage(tasks=4, demand={"cpu": "2"}, estimate_demand={"cpu": "1"})
    assert ends(run(tmp_path, job("j", underestimated)), "j") == [2_000] * 4


def test_a_cell_that_goes_over_to_places_takes_running_tasks_with_it(tmp_path):
    """Half done when the preset changes: from then on they share their node with whoever comes."""

    def switch(cell):
        if cell.time == 500 and cell.admission.policy.preset != "slots":
            cell.take(ConfigPatch({"preset": "slots"}, None), "tester")

    lines = [job("j", stage(demand={"cpu": "4"})), job("k", stage(demand={"cpu": "4"}), submit_ms=500)]
    lines.append(job("l", stage(demand={"cpu": "4"}, duration_ms=100), submit_ms=9_000))
    jobs = [read_workload_line(line) for line in lines]
    result = simulate(jobs, read_cluster(cluster()), Options({"preset": "hdrf"}, before_round=switch))
    assert [row["end_ms"] for row in result["per_job"]] == [1_500, 2_000, 9_100]


@pytest.mark.parametrize("seed", range(3))
def test_places_that_fit_their_tasks_run_as_the_judge_would_have_it(shared, tmp_path, seed):
    """The judge knows no shared nodes; where places are as large as tasks there are none."""
    jobs = [job(f"j{i}", stage(tasks=5 + i + seed, duration_ms=700 + 90 * i), submit_ms=400 * i) for i in range(6)]
    found = run(tmp_path, *jobs, count=2)

    assert faults(shared, found, conserving=True) == []
