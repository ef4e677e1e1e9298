"""Promises are kept whatever else runs, and only what was said to be revocable is taken back.

In drawn cells units are of one core, so what fits the sum fits the nodes; estimates are exact; and what runs when a
request comes ends before its window begins. All that is left to go wrong is room that is not there when a lease begins.
"""

import json
from itertools import combinations

from hypothesis import example, settings
from hypothesis import strategies as st

from largesse.log.codec import decode
from schemas import JobSpec, NodeRegistered, ReservationRequested, RoundClosed, Stage
from schemas.edge.read import read_cluster
from schemas.topics import LOG
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.promised import Clearing, PromisedNodes, Space, Victim, empty
from services.simulator.run import Options, simulate
from services.simulator.schedule import ShortSchedule
from tests.strategies import for_all

STEP_MS = 2_000
LASTS_MAX = 8
"""Steps that other work lasts at most, and that a window begins after its request at least."""


def demand(cores):
    return {"cpu": cores * 1_000, "memory": cores * 512}


@st.composite
def workloads(draw):
    """Requests with their jobs, and other work, in a few queues."""
    lines = []
    for number in range(draw(st.integers(1, 4))):
        at, name = draw(st.integers(0, 12)), f"r{number}"
        gang = draw(st.sampled_from([1, 1, 2, 3]))
        work = gang * draw(st.integers(1, 6))
        begins = at + LASTS_MAX + 1 + draw(st.integers(0, 4))
        ends = begins + draw(st.integers(1, 8))
        step_s = STEP_MS // 1_000
        atom = {"op": "atom", "b": {"cpu": 1_000, "memory": 512}, "g": gang, "h": 6 // gang * gang}
        atom |= {"l": step_s, "w": work * step_s}
        window = {"op": "window", "s": begins * step_s, "e": ends * step_s, "of": atom}
        asked = ReservationRequested(name, "", json.dumps(window), "tester", "a")
        tasks = Stage("s", work, demand(1), [], STEP_MS, [STEP_MS])
        comes = draw(st.integers(at, begins - 2))
        lines += [(at * STEP_MS, asked), (comes * STEP_MS, JobSpec(f"of-{name}", "a", [tasks], 0, "", name))]
    for number in range(draw(st.integers(4, 20))):
        lasts_ms = draw(st.integers(1, LASTS_MAX * STEP_MS))
        tasks = draw(st.integers(1, 6))
        gang = tasks == 3
        stage = Stage("s", tasks, demand(1 if gang else draw(st.integers(1, 2))), [], lasts_ms, [lasts_ms], gang)
        queue = draw(st.sampled_from(["a", "b"]))
        lines.append((draw(st.integers(0, 20 * STEP_MS)), JobSpec(f"j{number}", queue, [stage])))
    return lines


@settings(max_examples=40, deadline=None)
@for_all(
    workloads(),
    st.integers(1, 3),
    st.integers(3, 6),
    st.sampled_from(["hdrf", "fifo", "largesse", "carbyne"]),
    st.sampled_from([0, 500, STEP_MS]),
)
def test_accepted_deadlines_are_met_and_only_revocable_work_gives_way(lines, nodes, cores, preset, grace_ms):
    cluster = read_cluster(
        {
            "nodes": [{"name": "n", "count": nodes, "capacity": {"cpu": str(cores), "memory": "64Gi"}}],
            "queues": {"name": "root", "children": [{"name": "a"}, {"name": "b"}]},
        }
    )
    closings = []

    def listen(topic, header, content):
        if topic == LOG and isinstance(body := (record := decode(content)).body, RoundClosed):
            closings.append(body)
            foreseen = [each for each in body.grants if each.revocable and each.job.startswith("j")]
            assert [each for each in foreseen if each.revocable_from_ms > record.time] == []

    schedule = ShortSchedule(10_000)
    knobs = {"preset": preset, "reservation_step_ms": STEP_MS, "revoke_grace_ms": grace_ms}
    result = simulate(lines, cluster, Options(knobs, schedule, listen))

    accepted = [each for each in result["reservations"] if each["accepted"]]
    assert [each for each in accepted if not each["met"]] == []
    revocable = {
        (grant.job, grant.stage, index, grant.attempt)
        for closing in closings
        for grant in closing.grants
        if grant.revocable
        for index in range(grant.first, grant.first + grant.count)
    }
    taken = {
        (item.job, item.stage, index, item.attempt)
        for closing in closings
        for item in closing.revoked
        for index in range(item.first, item.first + item.count)
    }
    assert taken <= revocable
    revoked = {(s.job, s.stage, s.index, s.attempt) for s in schedule.spans if s.outcome == "revoked"}
    assert revoked <= taken
    refused = {each["job"] for each in result["rejected"]}
    tasks = {job.job: sum(stage.tasks for stage in job.stages) for _, job in lines if isinstance(job, JobSpec)}
    due = sum(count for name, count in tasks.items() if name not in refused)
    assert sum(span.outcome == "succeeded" for span in schedule.spans) == due


# ---------------------------------------------------------------- the policy alone
def table_of(*cores):
    """Empty nodes."""
    table = NodeTable([{"cpu": count} for count in cores])
    for number, count in enumerate(cores):
        node = NodeRegistered(f"n{number}", "e", {"cpu": count})
        table.add(node.node, node.epoch, node.capacity, {}, [], True)
    return table


def a_class(table, cores, index=0):
    return table.task_class(index, table.shape({"cpu": cores}), {}, {}, 0)


@for_all(
    st.lists(st.integers(0, 6), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=8),
    st.integers(1, 3),
    st.integers(0, 8),
)
@example([1, 2], [(1, 2), (0, 1)], 1, 2)  # Units that a task that finds no room has moved.
def test_a_task_is_borne_as_long_as_all_units_still_find_room(cores, tasks, unit_cores, units):
    table = table_of(*cores)
    free = list(cores)
    unit = a_class(table, unit_cores)
    moment = PromisedNodes(table, 0, lambda number: empty(table.nodes[number]))
    held = units - moment.promise(unit, units)
    assert held == min(units, sum(have // unit_cores for have in free))

    for at, size in tasks:
        number = at % len(cores)
        left = [have - size * (n == number) for n, have in enumerate(free)]
        fits = left[number] >= 0 and sum(have // unit_cores for have in left) >= held
        assert moment.accept(number, a_class(table, size, 1)) == fits
        free = left if fits else free


@settings(deadline=None)
@for_all(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 9)), max_size=6),
)
def test_the_room_for_one_task_costs_the_least_work_that_it_can(cores, running):
    """All victims are of one core here; of unlike sizes only what is not needed is left out."""
    table = table_of(*cores)
    spaces = {number: empty(node) for number, node in enumerate(table.nodes)}
    victims = {}
    for i, (at, _, lost) in enumerate(running):
        number = at % len(cores)
        if spaces[number].free[0]:
            spaces[number].free[0] -= 1
            victims.setdefault(number, []).append(Victim(number, f"v{i}", [(0, 1)], [], lost))
    task = a_class(table, min(cores))

    def space_of(number):
        return Space(list(spaces[number].free), [])

    clearing = Clearing(table, space_of, victims)
    found = clearing.find(task, 1, whole=False)

    ways = [
        sum(victim.lost for victim in way)
        for number, space in spaces.items()
        for count in range(len(victims.get(number, [])) + 1)
        for way in combinations(victims.get(number, []), count)
        if space.free[0] + len(way) >= task.demand["cpu"]
    ]
    assert found == bool(ways)
    assert sum(victim.lost for victim in clearing.taken) == min(ways, default=0)


def one_to_find(cores, running, first=(), before_ms=100):
    """Room for one task of all cores of a node, beside attempts of a core as (node, delay, end in ms, work lost): where
    it is found, and what is taken back for it.
    """
    table = table_of(*cores)
    spaces = {number: empty(node) for number, node in enumerate(table.nodes)}
    victims, waits = {}, {}
    for i, (number, delay, end_ms, lost) in enumerate(running):
        spaces[number].free[0] -= 1
        of = waits if delay else victims
        of.setdefault(number, []).append(Victim(number, f"v{i}", [(0, 1)], [], lost, "", delay, end_ms))
    clearing = Clearing(
        table,
        lambda number: Space(list(spaces[number].free), []),
        victims,
        dict.fromkeys(first, True),
        lambda number: waits.get(number, []),
    )
    clearing.find(a_class(table, min(cores)), 1, whole=False, before_ms=before_ms)
    return [number for number, _ in clearing.rooms], [victim.key for victim in clearing.taken]


def test_a_node_that_is_being_emptied_stays_chosen_while_a_task_there_overruns():
    running = [(0, 2, 5, 0)]  # Up to four times as long as expected, beside an empty node.
    assert one_to_find([2, 2], running, first=[0]) == ([0], [])
    assert one_to_find([2, 2], running) == ([1], [])
    assert one_to_find([2, 2], [(0, 3, 5, 0)], first=[0]) == ([1], [])


def test_who_overruns_is_waited_for_only_where_nobody_can_be_taken_back_elsewhere():
    assert one_to_find([1, 1], [(0, 1, 5, 0), (1, 0, 0, 9)]) == ([1], ["v1"])
    assert one_to_find([1, 1], [(0, 2, 5, 0), (1, 1, 5, 0)]) == ([1], [])


def test_what_ends_after_the_lease_is_not_waited_for():
    assert one_to_find([1], [(0, 4, 99, 0)]) == ([0], [])
    assert one_to_find([1], [(0, 4, 100, 0)]) == ([], [])
