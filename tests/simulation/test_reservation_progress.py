"""Reserved jobs that take longer, or less, than estimated, on a cell that other work would fill."""

import pytest

from schemas.edge.read import read_cluster, read_workload_line
from services.simulator.run import Options, simulate
from services.simulator.workloads.workload_file import read_reservation_line

NODES, CORES = 4, 4
ESTIMATE_MS = 60_000
TASKS = 40


def reserved(name, at_s, window_s, taken_ms=ESTIMATE_MS, width=8):
    """A request for as many minutes as the job has tasks, and the job, with an estimate of a minute a task."""
    atom = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": width, "l": 60, "w": TASKS * 60}
    window = {"op": "window", "s": at_s, "e": at_s + window_s, "of": atom}
    asked = {"reservation": name, "user": "ann", "queue": "prod", "rdl": window}
    stage = {"stage": "s", "tasks": TASKS, "demand": {"cpu": "1"}, "duration_ms": taken_ms, "estimate_ms": ESTIMATE_MS}
    job = {"job": f"job-{name}", "queue": "prod", "user": "ann", "reservation": name, "stages": [stage]}
    submit = {"submit_ms": at_s * 1_000}
    return [read_reservation_line(submit | {"request": asked}), read_workload_line(submit | job)]


def batch(jobs=120):
    """Work for longer than the reservations last."""
    stage = {"stage": "s", "tasks": 8, "demand": {"cpu": "1"}, "duration_ms": 45_000}
    lines = [{"job": f"batch-{i}", "queue": "batch", "submit_ms": 0, "stages": [stage]} for i in range(jobs)]
    return [read_workload_line(line) for line in lines]


def reservations(arrived, **knobs):
    """The reservations of a run, by name."""
    queues = {"name": "root", "children": [{"name": "prod"}, {"name": "batch", "weight": 20}]}
    nodes = [{"name": "n", "count": NODES, "capacity": {"cpu": CORES}}]
    cluster = read_cluster({"nodes": nodes, "queues": queues, "policy": {"preset": "rayon"} | knobs})
    found = simulate(arrived, cluster, Options({"round_gap_ms": 500}))["reservations"]
    return {each["reservation"]: each for each in found}


@pytest.mark.parametrize("agent", ["default", "gree-l", "early"])
def test_jobs_that_take_three_tenths_longer_end_inside_their_windows_where_plans_follow_them(agent):
    arrived = [each for i in range(3) for each in reserved(f"r{i}", 120 * i, 1_200, taken_ms=ESTIMATE_MS * 13 // 10)]
    arrived += batch()

    on, off = (reservations(arrived, reservation_agent=agent, reservation_progress=each) for each in ("on", "off"))

    assert [each["met"] for each in on.values()] == [True, True, True]
    assert any(each["followed"] for each in on.values())
    assert [each["met"] for each in off.values()].count(False) >= 2


def staged(name, at_s, window_s, taken_ms, op=None, stages=3, width=8):
    """A reservation for stages that run one after the other, each of one wave of tasks that are estimated at a minute:
    as one atom, or as parts (`op`) with a job each."""
    one = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": width, "l": 60, "w": 60 * width}
    body = {"op": op, "of": [one] * stages} if op else one | {"w": 60 * width * stages}
    window = {"op": "window", "s": at_s, "e": at_s + window_s, "of": body}
    asked = {"reservation": name, "user": "ann", "queue": "prod", "rdl": window}
    task = {"tasks": width, "demand": {"cpu": "1"}, "duration_ms": taken_ms, "estimate_ms": ESTIMATE_MS}
    chain = [task | {"stage": f"s{i}", "after": [f"s{i - 1}"] if i and not op else []} for i in range(stages)]
    job = {"queue": "prod", "user": "ann", "reservation": name}
    jobs = [job | {"job": f"job-{name}", "stages": chain}]
    if op:
        jobs = [
            job | {"job": f"job-{name}-{i}", "reservation_atom": str(i), "stages": [each]}
            for i, each in enumerate(chain)
        ]
    submit = {"submit_ms": at_s * 1_000}
    return [read_reservation_line(submit | {"request": asked}), *(read_workload_line(submit | each) for each in jobs)]


@pytest.mark.parametrize(("agent", "op"), [("early", None), ("default", "order_no_gap")])
def test_stages_of_one_wave_that_all_run_late_end_inside_their_windows(agent, op):
    arrived = [each for i in range(4) for each in staged(f"r{i}", 120 * i, 720, ESTIMATE_MS * 13 // 10, op)] + batch()

    found = reservations(arrived, reservation_agent=agent)

    assert [each["met"] for each in found.values()] == [True] * 4
    assert all(each["followed"] for each in found.values())


def test_a_job_that_takes_less_than_was_told_leaves_room_for_a_reservation_that_comes_later():
    arrived = reserved("fast", 0, 420, taken_ms=ESTIMATE_MS // 3, width=16)
    wide = reserved("late", 200, 260, width=16)
    arrived += batch() + wide

    on, off = (reservations(arrived, reservation_progress=each) for each in ("on", "off"))

    assert (on["late"]["accepted"], off["late"]["accepted"]) == (True, False)
    assert [each["met"] for each in on.values()] == [True, True]


def test_jobs_that_take_what_was_told_meet_their_deadlines_as_well_where_plans_follow_them():
    arrived = [each for i in range(3) for each in reserved(f"r{i}", 120 * i, 1_200)] + batch()

    assert [each["met"] for each in reservations(arrived).values()] == [True, True, True]
