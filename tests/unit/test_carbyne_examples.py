"""The worked example of the CARBYNE paper (Grandl et al., OSDI 2016), figure 2: what a job gives away because it
joins at a barrier lets the other one end in half the time.
"""

import json
from pathlib import Path

import pytest

from schemas.edge.read import read_cluster, read_workload_line
from services.simulator.run import Options, simulate
from services.simulator.workloads.files import read_lines

WORKLOAD = Path(__file__).parents[2] / "examples" / "workloads" / "carbyne-figure-2.jsonl"


def ends(preset, **knobs):
    """When J1 and J2 end, in hundreds of seconds, the paper's units."""
    jobs = [read_workload_line(json.loads(line)) for _, line in read_lines(str(WORKLOAD))]
    cluster = read_cluster({"nodes": [{"name": "node", "capacity": {"cpu": "100"}}]})
    found = simulate(jobs, cluster, Options({"preset": preset, **knobs}))
    return {row["job"]: row["end_ms"] / 100_000 for row in found["per_job"]}


def test_what_the_barrier_leaves_to_j1_ends_j2_in_half_the_time():
    assert ends("carbyne") == {"J1": 2.1, "J2": 1.0}


@pytest.mark.parametrize("preset", ["drf", "hdrf", "capacity"])
def test_with_equal_shares_j2_runs_one_task_after_the_other(preset):
    assert ends(preset)["J2"] == 2.0


def test_jobs_that_give_nothing_share_as_under_drf():
    assert ends("carbyne", altruism_permille=0)["J2"] == 2.0
