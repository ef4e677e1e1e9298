"""Drawn cells of several nodes on which tasks of different proportions leave room that not all can use: a queue that
waits is below its part by weight for no longer than the longest of the tasks that come and go, and a second. Nodes
fail and come back, weights and maxima change, queues come and go, reservations run.
"""

from contextlib import suppress
from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest

from schemas.edge.read import ConfigPatch, read_cluster, read_workload_line
from services.simulator.outages import Outage
from services.simulator.run import Options, simulate
from services.simulator.schedule import ShortSchedule
from services.simulator.workloads.workload_file import read_reservation_line
from tests.simulation.runs import job, stage

NODES, CORES, GIB = 10, 2, 4
SHORT_MS, WITHIN_MS, STEP_MS, LONG_MS = (6_000, 9_000), 9_000 + 1_000, 250, 600_000
CHANGED_MS, DOWN_MS, BACK_MS, UNTIL_MS = 32_000, 54_000, 76_000, 98_000
KINDS = ((500, 512), (100, 1_024), (250, 1_024), (100, 0))  # Of a task: millicores and MiB.
QUEUES = ("a", "b", "c")
LEASED, LEASE_MS = 3, (44_000, 68_000)
"""So many whole nodes are promised to a fourth queue, from then to then."""


def tree(weights, most):
    children = [{"name": name, "weight": weights[name]} for name in QUEUES]
    for child in children:
        if child["name"] in most:
            child["max"] = {"memory": f"{most[child['name']]}Mi"}
    return {"name": "root", "children": [*children, {"name": "leased"}]}


class Drawn:
    """A cell, and who asks for what in it."""

    def __init__(self, seed):
        random = Random(f"guarantees drawn {seed}")
        self.weights = [{name: random.randint(1, 4) for name in QUEUES} for _ in range(2)]
        self.kinds = dict(zip(QUEUES, random.sample(KINDS, len(QUEUES)), strict=True))
        self.most = [self.maxima(random)] * 2
        self.holds = random.randint(0, 2)  # Tasks that stay, each with all of a node's memory.
        self.comes_ms = {name: random.choice((1_000, 2_000, 12_000)) for name in QUEUES}
        self.lasts = {name: [random.randint(*SHORT_MS) for _ in range(self.tasks(name))] for name in QUEUES}
        self.node = f"n-{NODES - 1}"  # It fails where nothing stays.
        if random.random() < 0.5:
            self.most = [self.most[0], self.maxima(random)]

    def maxima(self, random):
        """Of some queues that ask for memory, in MiB."""
        most = {name: 1_024 * random.choice((8, 12, 20)) for name in QUEUES if random.random() < 0.3}
        return {name: amount for name, amount in most.items() if self.kinds[name][1]}

    def tasks(self, name):
        """Some more than can run until the end, if the queue has as much as it may of the cell."""
        cpu, memory = self.kinds[name]
        at_once = min(NODES * CORES * 1_000 // cpu, NODES * GIB * 1_024 // memory if memory else 1_000)
        return at_once * (UNTIL_MS // SHORT_MS[0]) // (1 if memory else 2)

    def jobs(self):
        for number in range(self.holds):
            demand = {"memory": f"{GIB}Gi", "cpu": "100m"}
            yield job(f"stays-{number}", stage(duration_ms=LONG_MS, demand=demand), queue="a")
        for name, (cpu, memory) in self.kinds.items():
            demand = {"cpu": f"{cpu}m"} | ({"memory": f"{memory}Mi"} if memory else {})
            yield job(
                name, stage(durations_ms=self.lasts[name], demand=demand), queue=name, submit_ms=self.comes_ms[name]
            )

    def lease(self):
        """A reservation of whole nodes, and the job that runs in it."""
        from_s, to_s = (at_ms // 1_000 for at_ms in LEASE_MS)
        whole = {"cpu": str(CORES), "memory": f"{GIB}Gi"}
        atom = {"op": "atom", "b": whole, "g": LEASED, "h": LEASED, "l": to_s - from_s, "w": LEASED * (to_s - from_s)}
        asked = {"reservation": "r", "user": "ann", "queue": "leased"}
        asked["rdl"] = {"op": "window", "s": from_s, "e": to_s, "of": atom}
        runs = stage(tasks=LEASED, duration_ms=LEASE_MS[1] - LEASE_MS[0] - WITHIN_MS, demand=whole)
        reserved = job("leased", runs, queue="leased", user="ann", reservation="r", submit_ms=1_000)
        return [read_reservation_line({"submit_ms": 0, "request": asked}), read_workload_line(reserved)]

    def held(self, name, runs, nodes):
        """The dominant share of so many tasks, with what stays."""
        cpu, memory = self.kinds[name]
        stays = self.holds if name == "a" else 0
        return max(
            Fraction(runs * cpu + stays * 100, nodes * CORES * 1_000),
            Fraction(runs * memory + stays * GIB * 1_024, nodes * GIB * 1_024),
        )

    def most_tasks(self, name, most):
        """How many tasks its maximum allows."""
        stays = self.holds * GIB * 1_024 if name == "a" else 0
        return max(0, most[name] - stays) // self.kinds[name][1] if name in most else 10_000

    def due_tasks(self, name, due, nodes, most):
        """With how many tasks it is not below its due: less than a task is missing, or its maximum is reached."""
        runs = 0
        while runs < self.most_tasks(name, most) and self.held(name, runs + 1, nodes) < due:
            runs += 1
        return runs

    def packs(self, counts, nodes):
        """Whether so many tasks fit on nodes: dealt out, each to the node that then has the evenest rest."""
        free = [(CORES * 1_000 - 100, 0)] * self.holds + [(CORES * 1_000, GIB * 1_024)] * (nodes - self.holds)
        tasks = sorted((kind for name, count in counts.items() for kind in [self.kinds[name]] * count), reverse=True)
        for cpu, memory in tasks:
            able = [at for at, (cores, left) in enumerate(free) if cores >= cpu and left >= memory]
            if not able:
                return False
            rests = {at: (free[at][0] - cpu, free[at][1] - memory) for at in able}
            best = min(able, key=lambda at: abs(2 * rests[at][0] - rests[at][1]) if memory else rests[at][1])
            free[best] = free[best][0] - cpu, free[best][1] - memory
        return True


def spans_of(drawn, preset, arrivals=(), outages=()):
    given = {
        "nodes": [{"name": "n", "count": NODES, "capacity": {"cpu": str(CORES), "memory": f"{GIB}Gi"}}],
        "queues": tree(drawn.weights[0], drawn.most[0]),
    }
    changed = read_cluster({**given, "queues": tree(drawn.weights[1], drawn.most[1])}).queues

    class OverError(Exception):
        pass

    def change(cell):
        if cell.time >= CHANGED_MS and cell.admission.queues != changed:
            cell.take(ConfigPatch({}, changed), "tester")
        if cell.time > UNTIL_MS + LONG_MS // 10:
            raise OverError

    schedule = ShortSchedule(20_000)
    options = Options({"preset": preset, "reservation_step_ms": 1_000}, schedule, before_round=change)
    options.outages = list(outages)
    with suppress(OverError):
        simulate([*map(read_workload_line, drawn.jobs()), *arrivals], read_cluster(given), options)
    return {name: [span for span in schedule.spans if span.job == name] for name in (*QUEUES, "leased")}


def longest_below(drawn, spans, from_ms, to_ms, nodes):
    """-> for how long some queue is below its part without a break, and which; None where no packing exists, or where
    a queue asks for a part of the time alone.
    """
    changed = from_ms >= CHANGED_MS
    weights, most = drawn.weights[changed], drawn.most[changed]
    last_ms = {name: max(span.start_ms for span in spans[name]) for name in QUEUES}
    asking = [name for name in QUEUES if drawn.comes_ms[name] <= from_ms and last_ms[name] > to_ms]
    if any(from_ms < last_ms[name] <= to_ms for name in QUEUES):
        return None
    total = sum(weights[name] for name in asking)
    wanted = {name: drawn.due_tasks(name, Fraction(weights[name], total), nodes, most) for name in asking}
    if not drawn.packs(wanted, nodes):
        return None
    worst = 0, ""
    for name, count in wanted.items():
        since_ms = from_ms
        for at_ms in range(from_ms, to_ms, STEP_MS):
            if sum(span.start_ms <= at_ms < span.end_ms for span in spans[name]) >= count:
                since_ms = at_ms + STEP_MS
            worst = max(worst, (at_ms - since_ms, name))
    return worst


@pytest.mark.parametrize(("seed", "preset"), [(2, "hdrf"), (20, "hdrf"), (2, "largesse"), (2, "dress")])
def test_who_waits_is_below_its_part_no_longer_than_the_longest_task(seed, preset):
    drawn = Drawn(seed)
    spans = spans_of(drawn, preset, outages=[Outage(drawn.node, DOWN_MS, BACK_MS)])
    notice_ms = 10_000  # So long nobody knows that the node is lost.
    points = sorted({*drawn.comes_ms.values(), CHANGED_MS, DOWN_MS, DOWN_MS + notice_ms, BACK_MS, UNTIL_MS})
    looked_at = 0
    for from_ms, to_ms in pairwise(points):
        if from_ms == DOWN_MS:
            continue
        nodes = NODES - (DOWN_MS <= from_ms < BACK_MS)
        found = longest_below(drawn, spans, from_ms, to_ms, nodes)
        if found is not None:
            assert found[0] <= WITHIN_MS, (found[1], from_ms)
            looked_at += 1
    assert looked_at


@pytest.mark.parametrize(("seed", "preset"), [(2, "rayon"), (20, "rayon"), (2, "largesse"), (2, "hdrf")])
def test_who_waits_has_its_part_of_what_is_not_promised(seed, preset):
    drawn = Drawn(seed)
    spans = spans_of(drawn, preset, drawn.lease())
    assert [span.start_ms <= LEASE_MS[0] + SHORT_MS[1] for span in spans["leased"]] == [True] * LEASED
    makes_room_ms = LEASE_MS[0] - WITHIN_MS  # From then on nodes are emptied for what is promised.
    points = sorted({*drawn.comes_ms.values(), CHANGED_MS, makes_room_ms, *LEASE_MS, UNTIL_MS})
    looked_at = {}
    for from_ms, to_ms in pairwise(points):
        if from_ms == makes_room_ms:
            continue
        nodes = NODES - LEASED * (LEASE_MS[0] <= from_ms < LEASE_MS[1])
        found = longest_below(drawn, spans, from_ms, to_ms, nodes)
        if found is not None:
            assert found[0] <= WITHIN_MS, (found[1], from_ms)
            looked_at[from_ms] = True
    assert LEASE_MS[0] in looked_at
