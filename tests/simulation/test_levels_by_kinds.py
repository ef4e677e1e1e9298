"""A leaf with tasks of different kinds: a kind that is full does not hold back tasks that need none of it."""

from hypothesis import strategies as st

from services.fairness.hdrf.static import fill
from services.fairness.tree import TreeNode
from tests.simulation.placed_cells import Load, PlacedCell, queue
from tests.strategies import for_all

NODES: dict[str, tuple[dict[str, int], dict[str, str]]] = {f"n{i}": ({"cpu": 16, "gpu": 4}, {}) for i in range(10)}
ON_GPU, ON_CPU = Load({"cpu": 1, "gpu": 1}, tasks=1_000), Load({"cpu": 1}, tasks=1_000)
OTHERS = {"other": ON_CPU, **{f"g{i}": ON_GPU for i in range(4)}}


def cell(**loads):
    """Beside one queue with tasks for CPUs alone and four that ask for GPUs, too."""
    others = [queue(name, weight=2) for name in OTHERS]
    ours = [queue(name, weight=2 // len(loads)) for name in loads]
    return PlacedCell([*others, *ours], NODES, {**loads, **OTHERS})


def test_tasks_without_gpus_go_on_once_the_gpus_are_used_up():
    """They had 18 % of the CPUs, where the same tasks in two queues of half the weight had 28 %."""
    one, two = cell(mixed=[ON_GPU, ON_CPU]), cell(on_gpu=ON_GPU, on_cpu=ON_CPU)
    for each in (one, two):
        each.run_until(20_000)
    held_alone, held_split = one.over(20_000)["mixed"], two.over(20_000)

    assert held_alone >= held_split["on_gpu"] + held_split["on_cpu"] - 0.01
    assert held_alone >= 0.36


def test_a_level_says_what_each_set_of_kinds_comes_to():
    shares = cell(mixed=[ON_GPU, ON_CPU]).cell.fairness

    assert list(shares.parts) == ["mixed"]
    assert shares.parts["mixed"].keys() == {"cpu", "cpu,gpu"}
    assert shares.parts["mixed"]["cpu,gpu"] < shares.parts["mixed"]["cpu"] < shares.told["mixed"]


kinds = st.sampled_from([(0,), (1,), (0, 1), (0, 2), (0, 1, 2)])


@st.composite
def demands(draw):
    asked = draw(kinds)
    return [draw(st.integers(1, 9)) * 1_000_000 if kind in asked else 0 for kind in range(3)]


@for_all(demands(), demands(), st.lists(st.tuples(demands(), st.integers(1, 3)), min_size=1, max_size=6))
def test_splitting_a_queue_by_kinds_gains_next_to_nothing(a, b, others):
    """It gained up to 4 % in 400 drawn trees. The other way round, one queue may have up to twice as much as two of
    half the weight: a vector counts by its dominant kind alone (DRF), two vectors by one each."""

    def filled(ours):
        beside = [TreeNode(f"o{i}", weight, demand=demand) for i, (demand, weight) in enumerate(others)]
        return fill(TreeNode("/", children=[*ours, *beside]), [100, 100, 100]).leaves

    one = filled([TreeNode("l", 2, children=[TreeNode("a", demand=a), TreeNode("b", demand=b)])])
    two = filled([TreeNode("a", demand=a), TreeNode("b", demand=b)])

    assert all(10 * one[name].share >= 9 * two[name].share for name in "ab")
