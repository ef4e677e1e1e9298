"""Tasks on nodes that hold more than they have: how fast they run, and when they end."""

from fractions import Fraction

import pytest
from hypothesis import strategies as st

from services.simulator.shared_nodes import SharedNodes
from tests.strategies import for_all


def ends_of(capacity, *tasks):
    """When tasks end on one node, by number. A task: (start ms, work ms, demand[, how many alike])."""
    nodes, ends = SharedNodes(), {}
    nodes.set_capacity("n", capacity, 0)
    for number, (start_ms, work_ms, demand, *count) in enumerate(tasks):
        run_until(nodes, start_ms, ends)
        nodes.start("n", number, number, demand, *(count or [1]), work_ms, start_ms)
    run_until(nodes, 10**9, ends)
    return [ends[number] for number in range(len(tasks))]


def run_until(nodes, now_ms, ends):
    for at_ms, number in nodes.take_due(now_ms):
        nodes.stop("n", number, at_ms)
        ends[number] = at_ms


@pytest.mark.parametrize(
    ("tasks", "ends"),
    [
        pytest.param([(0, 1_000, {"cpu": 4})], [1_000], id="a node that is just full slows nobody"),
        pytest.param([(0, 1_000, {"cpu": 4}), (0, 1_000, {"cpu": 4})], [2_000, 2_000], id="twice too much, half speed"),
        pytest.param([(0, 1_000, {"cpu": 8})], [2_000], id="one task alone may be too much"),
        pytest.param([(0, 1_000, {"cpu": 2}, 4)], [2_000], id="tasks that begin together count each"),
        pytest.param(
            [(0, 1_000, {"cpu": 4}), (0, 500, {"cpu": 4})], [1_500, 1_000], id="an end lets the others speed up"
        ),
        pytest.param(
            [(0, 1_000, {"cpu": 4}), (500, 1_000, {"cpu": 4})], [1_500, 2_000], id="a start slows those there"
        ),
        pytest.param(
            [(0, 1_000, {"cpu": 8}), (0, 1_000, {"memory": 1})], [2_000, 1_000], id="who asks for none is free"
        ),
        pytest.param(
            [(0, 900, {"cpu": 6, "memory": 12}), (0, 900, {"cpu": 1, "memory": 12})],
            [2_700, 2_700],
            id="the scarcest kind",
        ),
        pytest.param([(0, 0, {"cpu": 9})], [0], id="no work takes no time"),
        pytest.param([(0, 7, {})], [7], id="who asks for nothing"),
    ],
)
def test_speeds(tasks, ends):
    assert ends_of({"cpu": 4, "memory": 8}, *tasks) == ends


def test_a_node_that_grows_speeds_its_tasks_up():
    nodes, ends = SharedNodes(), {}
    nodes.set_capacity("n", {"cpu": 2}, 0)
    nodes.start("n", 0, 0, {"cpu": 4}, 1, 1_000, 0)
    run_until(nodes, 1_000, ends)
    nodes.set_capacity("n", {"cpu": 4}, 1_000)
    assert nodes.next_ms() == 1_500


def test_a_task_that_asks_for_what_a_node_has_none_of_is_a_fault():
    with pytest.raises(AssertionError, match="asks for gpu"):
        ends_of({"cpu": 1}, (0, 1, {"gpu": 1}))


def test_a_task_that_is_stopped_early_ends_no_more():
    nodes = SharedNodes()
    nodes.set_capacity("n", {"cpu": 2}, 0)
    nodes.start("n", 0, 0, {"cpu": 2}, 1, 1_000, 0)
    nodes.stop("n", 0, 500)
    nodes.stop("n", 0, 500)
    assert nodes.next_ms() is None


# ---------------------------------------------------------------- against the definition
KINDS = {"cpu": 7, "memory": 11}
demands = st.fixed_dictionaries({"cpu": st.integers(0, 9), "memory": st.integers(0, 9)})
drawn = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 500), demands, st.integers(1, 3)), min_size=1, max_size=8
)


def exact_ends(tasks):
    """The definition in fractions of a ms: everybody's speed worked out anew at every start and end."""
    left = {number: Fraction(work) for number, (_, work, _, _) in enumerate(tasks)}
    now, ends = Fraction(0), {}
    while len(ends) < len(tasks):
        on = [n for n, task in enumerate(tasks) if task[0] <= now and n not in ends]
        over = [n for n in on if left[n] <= 0]
        if over:
            ends |= dict.fromkeys(over, now)
            continue
        use = {kind: sum(tasks[n][2][kind] * tasks[n][3] for n in on) for kind in KINDS}
        speed = {
            n: min([Fraction(1), *(Fraction(KINDS[kind], use[kind]) for kind in KINDS if tasks[n][2][kind])])
            for n in on
        }
        moments = [now + left[n] / speed[n] for n in on] + [Fraction(task[0]) for task in tasks if task[0] > now]
        then = min(moments)
        for n in on:
            left[n] -= (then - now) * speed[n]
        now = then
    return [ends[n] for n in range(len(tasks))]


@for_all(drawn)
def test_every_end_is_where_the_definition_has_it_but_for_whole_milliseconds(tasks):
    """An end rounded up delays those that would have sped up then, each by less than the rounding."""
    tasks = sorted(tasks, key=lambda task: task[0])
    slowest = max(sum(task[2][kind] * task[3] for task in tasks) / KINDS[kind] for kind in KINDS)
    for found, exact in zip(ends_of(KINDS, *tasks), exact_ends(tasks), strict=True):
        assert exact - Fraction(1, 1_000) <= found <= exact + len(tasks) * (1 + int(slowest))
