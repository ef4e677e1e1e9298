"""Requests that are derived from a job: every task that keeps its estimate ends inside the window, however narrow what
the cell has to promise, and however many tasks run one after another.
"""

from random import Random

import pytest

from schemas.edge.jobs import read_job
from schemas.edge.read import read_cluster, read_workload_line
from services.planner.rdl.document import read_document
from services.planner.rdl.of_job import request_text
from services.planner.rdl.times import clock
from services.simulator.run import Options, simulate
from services.simulator.schedule import ShortSchedule
from services.simulator.workloads.workload_file import read_reservation_line
from tests.simulation.runs import job, stage

BEGIN_S, SHORTER_MS = 60, 500
"""When the window begins, and what each task leaves of its estimate for its start."""


def drawn(seed):
    """-> (cores of the cell, arrivals, when the window ends in s)"""
    random = Random(f"leases of jobs {seed}")
    cores, stages, end_s = random.randint(3, 12), [], BEGIN_S
    for at in range(random.randint(1, 3)):
        tasks, lasts_s = random.randint(1, 40), random.choice((7, 20, 50))
        after = {"after": [f"s{at - 1}"]} if at else {}
        lasts = {"estimate_ms": 1_000 * lasts_s, "duration_ms": 1_000 * lasts_s - SHORTER_MS}
        stages.append(stage(f"s{at}", tasks=tasks, **lasts, **after))
        end_s += -(-5 * -(-tasks // cores) * lasts_s // 4)  # The least time in which they can run, and a quarter.
    spec = read_job({"job": "nightly", "user": "ann", "stages": stages}, "")
    rdl = read_document(request_text(spec, f"{BEGIN_S}s", f"{end_s}s"), clock(now_s=0))
    asked = {"reservation": "r", "user": "ann", "queue": "leased", "rdl": rdl}
    more = stage(tasks=40 * cores, duration_ms=5_000, estimate_ms=5_000)
    jobs = [
        job("nightly", *stages, queue="leased", user="ann", reservation="r", submit_ms=1_000),
        job("others", more, queue="others", submit_ms=0),
    ]
    return cores, [read_reservation_line({"submit_ms": 0, "request": asked}), *map(read_workload_line, jobs)], end_s


@pytest.mark.rotating(4)
@pytest.mark.parametrize("preset", ["rayon", "largesse"])
@pytest.mark.parametrize("seed", range(24))
def test_a_job_under_the_request_that_was_derived_from_it_ends_inside_its_window(seed, preset):
    cores, arrivals, end_s = drawn(seed)
    queues = {"name": "root", "children": [{"name": "leased"}, {"name": "others"}]}
    cluster = {"nodes": [{"name": "n", "capacity": {"cpu": str(cores)}}], "queues": queues}
    schedule = ShortSchedule(50_000)
    options = Options({"preset": preset, "reservation_step_ms": 1_000}, schedule)
    result = simulate(arrivals, read_cluster(cluster), options)

    (answer,) = result["reservations"]
    assert answer["accepted"], answer["detail"]
    spans = [span for span in schedule.spans if span.job == "nightly"]
    assert len(spans) == sum(each.tasks for each in arrivals[1][1].stages)
    assert max(span.end_ms for span in spans) <= 1_000 * end_s
