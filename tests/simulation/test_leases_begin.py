"""Leases of drawn cells that are full of tasks whose run times differ from what is expected of them: what is promised
to a reservation starts no later after the begin of its lease than the longest of those tasks takes.
"""

from contextlib import suppress
from random import Random

import pytest

from schemas.edge.read import read_cluster, read_workload_line
from services.simulator.run import Options, simulate
from services.simulator.schedule import ShortSchedule
from services.simulator.workloads.workload_file import read_reservation_line
from tests.simulation.runs import job, stage

FROM_S, LASTS_S, RUNS_MS = 30, 60, 35_000
MEAN_MS, LONGEST_MS = 8_000, 20_000
DEMANDS = ({"cpu": "500m", "memory": "512Mi"}, {"cpu": "100m", "memory": "1Gi"}, {"cpu": "1", "memory": "256Mi"})


class OverError(Exception):
    """The lease is over."""


def stop(cell):
    if cell.time > (FROM_S + LASTS_S) * 1_000:
        raise OverError


def drawn(seed):
    """-> (the cluster's document, arrivals, how many units are promised)"""
    random = Random(f"leases begin {seed}")
    nodes, cores, part = random.randint(3, 6), random.choice((2, 4)), random.choice((1, 1, 2))
    units = random.randint(1, nodes // 2) * part
    gang = random.choice([width for width in (1, 2, units) if units % width == 0])
    unit = {"cpu": f"{cores * 1_000 // part}m", "memory": f"{8 // part}Gi"}  # Of a node, or of half of one.
    atom = {"op": "atom", "b": unit, "g": gang, "h": units, "l": LASTS_S, "w": units * LASTS_S}
    asked = {"reservation": "r", "user": "ann", "queue": "leased"}
    asked["rdl"] = {"op": "window", "s": FROM_S, "e": FROM_S + LASTS_S, "of": atom}
    runs = stage(tasks=units, duration_ms=RUNS_MS, demand=unit, gang=random.random() < 0.2)
    jobs = [job("leased", runs, queue="leased", user="ann", reservation="r", submit_ms=15_000)]
    for queue in ("a", "b"):
        count = nodes * cores * 2 * (FROM_S + LASTS_S) * 1_000 // MEAN_MS
        lasts = [max(500, int(MEAN_MS * random.lognormvariate(-0.1, 0.5))) for _ in range(count)]
        estimate = {"estimate_ms": MEAN_MS} if random.random() < 0.5 else {}
        tasks = stage(durations_ms=[min(LONGEST_MS, ms) for ms in lasts], demand=random.choice(DEMANDS), **estimate)
        jobs.append(job(queue, tasks, queue=queue, submit_ms=random.choice((0, 2_000))))
    arrivals = [read_reservation_line({"submit_ms": 0, "request": asked}), *map(read_workload_line, jobs)]
    queues = [{"name": "a", "weight": random.randint(1, 3)}, {"name": "b"}, {"name": "leased"}]
    capacity = {"cpu": str(cores), "memory": "8Gi"}
    cluster = {"nodes": [{"name": "n", "count": nodes, "capacity": capacity}]}
    return cluster | {"queues": {"name": "root", "children": queues}}, arrivals, units


@pytest.mark.rotating(4)
@pytest.mark.parametrize("preset", ["rayon", "largesse", "hdrf"])
@pytest.mark.parametrize("seed", range(20))
def test_what_is_promised_starts_when_the_tasks_before_it_have_ended(seed, preset):
    cluster, arrivals, units = drawn(seed)
    schedule = ShortSchedule(50_000)
    options = Options({"preset": preset, "reservation_step_ms": 1_000}, schedule, before_round=stop)
    with suppress(OverError):
        simulate(arrivals, read_cluster(cluster), options)

    assert any(span.start_ms > FROM_S * 1_000 for span in schedule.spans if span.job in ("a", "b")), "nobody waits"
    started = [span.start_ms for span in schedule.spans if span.job == "leased"]
    assert len(started) == units
    assert max(started) <= FROM_S * 1_000 + LONGEST_MS
