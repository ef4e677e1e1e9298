"""Production jobs with deadlines beside many small jobs: accepted deadlines are met, also when nodes are lost."""

import pytest

from schemas import NodeDrained
from schemas.edge.read import read_cluster, read_workload_line
from services.simulator.drawn import Dice
from services.simulator.run import Options, simulate
from services.simulator.workloads.workload_file import read_reservation_line

NODES, CORES = 10, 8
SPAN_S = 1_800
QUEUES = {"name": "root", "children": [{"name": "prod"}, {"name": "batch"}]}


def mixed(seed, production=6, small=114, load=0.6):
    """One job in twenty has a deadline and asks for most of the work; (submit_ms, what comes)."""
    dice = Dice(seed)
    found = []
    work_s = int(NODES * CORES * SPAN_S * load)  # Core-seconds of the production jobs together.
    for i in range(production):
        at_ms = SPAN_S * 1_000 * i // production
        tasks, lasts_s = work_s // production // 60, 50 + dice.upto(8, i, "lasts")
        begin = at_ms // 1_000
        atom = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": 72, "l": 60, "w": tasks * 60}
        window = {"op": "window", "s": begin, "e": begin + 1_200 + dice.upto(600, i, "slack"), "of": atom}
        asked = {"reservation": f"r{i}", "user": "ann", "queue": "prod", "rdl": window}
        found.append(read_reservation_line({"submit_ms": at_ms, "request": asked}))
        stage = {"stage": "s", "tasks": tasks, "demand": {"cpu": "1"}, "duration_ms": lasts_s * 1_000}
        job = {"job": f"prod-{i}", "queue": "prod", "user": "ann", "submit_ms": at_ms, "stages": [stage]}
        found.append(read_workload_line(job | {"reservation": f"r{i}"}))
    for i in range(small):
        stage = {"stage": "s", "tasks": 1 + dice.upto(9, i, "tasks"), "demand": {"cpu": "1"}}
        stage["duration_ms"] = 5_000 + dice.upto(40_000, i, "small")
        job = {"job": f"small-{i}", "queue": "batch", "submit_ms": dice.upto(SPAN_S * 1_000, i, "at")}
        found.append(read_workload_line(job | {"stages": [stage]}))
    return found


def cell(**knobs):
    return read_cluster(
        {"nodes": [{"name": "n", "count": NODES, "capacity": {"cpu": CORES}}], "queues": QUEUES, "policy": knobs}
    )


def by_name(result):
    return {each["reservation"]: each for each in result["reservations"]}


@pytest.mark.parametrize("preset", ["rayon", "fifo", "capacity"])
def test_every_accepted_deadline_is_met_beside_small_jobs(preset):
    found = by_name(simulate(mixed(1), cell(preset=preset), Options({})))
    assert len(found) == 6
    assert [each["reservation"] for each in found.values() if each["accepted"]]
    assert [name for name, each in found.items() if each["accepted"] and not each["met"]] == []


@pytest.mark.parametrize("seed", [1, 2])
def test_deadlines_are_met_or_broken_promises_are_named_when_a_tenth_of_the_nodes_goes_midway(seed):
    arrivals = [*mixed(seed, production=10, small=100, load=0.8), (SPAN_S * 500, NodeDrained("n-3", True))]
    found = by_name(simulate(arrivals, cell(preset="rayon"), Options({})))
    kept = [each for each in found.values() if each["accepted"] and not each["broken"]]
    assert len(kept) >= 9
    assert [each["reservation"] for each in kept if not each["met"]] == []


def test_small_jobs_wait_less_beside_reservations_than_behind_production_jobs():
    def waiting_ms(**knobs):
        arrivals = mixed(1, production=10, small=200, load=0.9)
        rows = simulate(arrivals, cell(preset="fifo", **knobs), Options({}))["per_job"]
        return sum(row["start_ms"] - row["submit_ms"] for row in rows if row["queue"] == "batch")

    assert 5 * waiting_ms() < waiting_ms(reservations="off")


def test_jobs_of_an_order_run_one_after_the_other():
    atoms = [{"op": "atom", "b": {"cpu": "1"}, "g": 4, "h": 4, "l": 60, "w": 240} for _ in range(3)]
    window = {"op": "window", "s": 0, "e": 1_200, "of": {"op": "order", "of": atoms}}
    arrivals = [read_reservation_line({"submit_ms": 0, "request": {"reservation": "r", "user": "ann", "rdl": window}})]
    for part in (2, 1, 0):  # The last comes first.
        stage = {"stage": "s", "tasks": 4, "demand": {"cpu": "1"}, "duration_ms": 50_000, "gang": True}
        job = {"job": f"part-{part}", "user": "ann", "submit_ms": 1_000, "reservation": "r", "stages": [stage]}
        arrivals.append(read_workload_line(job | {"reservation_atom": str(part)}))
    cluster = read_cluster(
        {"nodes": [{"name": "n", "count": 4, "capacity": {"cpu": 4}}], "policy": {"preset": "rayon"}}
    )

    rows = {row["job"]: row for row in simulate(arrivals, cluster, Options({}))["per_job"]}

    assert rows["part-0"]["end_ms"] <= rows["part-1"]["start_ms"]
    assert rows["part-1"]["end_ms"] <= rows["part-2"]["start_ms"]


class Starts:
    """When attempts of jobs start and how they end: what a schedule file holds."""

    def __init__(self):
        self.starts, self.outcomes = {}, []

    def attempt(self, job, _stage, _index, attempt, _node, start_ms, _end_ms, outcome, _why):
        self.starts.setdefault((job, attempt), []).append(start_ms)
        self.outcomes.append(outcome)

    def held(self, *_):
        pass


def test_reserved_gangs_start_whole_where_other_work_has_to_make_room():
    arrivals = []
    for i in range(4):
        at_s, tasks = 600 + 300 * i, (12, 5)[i % 2]
        atom = {"op": "atom", "b": {"cpu": "1"}, "g": tasks, "h": tasks, "l": 120, "w": 120 * tasks}
        window = {"op": "window", "s": at_s, "e": at_s + 480, "of": atom}
        asked = {"reservation": f"g{i}", "user": "ann", "queue": "prod", "rdl": window}
        arrivals.append(read_reservation_line({"submit_ms": 0, "request": asked}))  # Before any other task starts.
        stage = {"stage": "s", "tasks": tasks, "demand": {"cpu": "1"}, "duration_ms": 110_000, "gang": True}
        job = {"job": f"gang-{i}", "queue": "prod", "user": "ann", "submit_ms": at_s * 1_000, "stages": [stage]}
        arrivals.append(read_workload_line(job | {"reservation": f"g{i}"}))
    for i in range(30):
        stage = {"stage": "s", "tasks": 4, "demand": {"cpu": "1"}, "duration_ms": 400_000}
        line = {"job": f"b{i}", "queue": "batch", "submit_ms": 30_000 * i, "stages": [stage]}
        arrivals.append(read_workload_line(line))
    nodes = [{"name": "n", "count": 2, "capacity": {"cpu": 8}}]
    cluster = read_cluster({"nodes": nodes, "queues": QUEUES, "policy": {"preset": "rayon"}})
    schedule = Starts()

    found = by_name(simulate(arrivals, cluster, Options({}, schedule=schedule)))

    assert {(each["accepted"], each["met"]) for each in found.values()} == {(True, True)}
    assert "revoked" in schedule.outcomes
    gangs = {key: starts for key, starts in schedule.starts.items() if key[0].startswith("gang")}
    assert {job: len(starts) for (job, _), starts in gangs.items()} == {f"gang-{i}": (12, 5)[i % 2] for i in range(4)}
    assert {len(set(starts)) for starts in gangs.values()} == {1}
